//! What the driver's errors mean: the driver sorts them by where they came up, we by what can be done about them.

use super::settings::Settings;
use forebay_core::{Error, ErrorKind};
use scylla::errors::{
    BrokenConnectionError, BrokenConnectionErrorKind, ConnectionError, ConnectionPoolError,
    ConnectionSetupRequestErrorKind, DbError, ExecutionError, FrameHeaderParseError, MetadataError,
    NewSessionError, NextPageError, NextRowError, PagerExecutionError, PrepareError, RequestAttemptError,
    RequestError,
};
use std::time::Duration;

/// No session could be made. `unshown`: the server asked for a certificate, and there was none to show.
pub(super) fn connect(settings: &Settings, error: NewSessionError, unshown: bool) -> Error {
    let doing = format!("connect to {}", settings.hosts());
    match error {
        NewSessionError::MetadataError(MetadataError::ConnectionPoolError(ConnectionPoolError::Broken {
            last_connection_error,
        })) if unshown && is_cut(&last_connection_error) => {
            Error::new(ErrorKind::Denied, format!("{doing}: the server asks for a client's certificate"))
                .with_source(last_connection_error)
                .with_hint(SHOW)
        }
        NewSessionError::MetadataError(MetadataError::ConnectionPoolError(pool)) => self::pool(&doing, pool),
        NewSessionError::FailedToResolveAnyHostname(_) => {
            Error::unavailable(format!("{doing}: no such host is known")).with_source(error).with_away()
        }
        NewSessionError::IllegalConfig(why) => Error::invalid_config(format!("{doing}: {why}")),
        other => Error::unavailable(doing).with_source(other),
    }
}

/// A pool hides why its last connection failed: that is what the user wants to know.
fn pool(doing: &str, error: ConnectionPoolError) -> Error {
    match error {
        ConnectionPoolError::Broken { last_connection_error } => connection(doing, last_connection_error),
        other => {
            Error::unavailable(format!("{doing}: no connection is ready")).with_source(other).with_away()
        }
    }
}

fn connection(doing: &str, error: ConnectionError) -> Error {
    match error {
        ConnectionError::ConnectionSetupRequestError(setup) => match setup.error {
            ConnectionSetupRequestErrorKind::DbError(DbError::AuthenticationError, why) => {
                Error::new(ErrorKind::Denied, format!("{doing}: user name or password refused: {why}"))
                    .with_hint("check the options `username` and `password`, or CASSANDRA_USERNAME and CASSANDRA_PASSWORD")
            }
            ConnectionSetupRequestErrorKind::MissingAuthentication => {
                Error::new(ErrorKind::Denied, format!("{doing}: the server asks for a user name and a password"))
                    .with_hint("give the options `username` and `password`, or set CASSANDRA_USERNAME and CASSANDRA_PASSWORD")
            }
            ConnectionSetupRequestErrorKind::DbError(kind, why) => database(doing, &kind, &why),
            ConnectionSetupRequestErrorKind::BrokenConnection(broken) if alert(&broken).is_some() => {
                let why = alert(&broken).unwrap_or_default();
                let message = format!("{doing}: the server does not take the certificate that was shown: {why}");
                Error::new(ErrorKind::Denied, message).with_hint(SHOW)
            }
            ConnectionSetupRequestErrorKind::BrokenConnection(broken) => {
                Error::unavailable(format!("{doing}: the server closed the connection before it said a word"))
                    .with_source(broken)
                    .with_away()
                    .with_hint("check the port, and whether the server wants `tls` = `on`, `tls_client_cert` and `tls_client_key`")
            }
            other => Error::unavailable(format!("{doing}: the server does not answer as one of CQL does"))
                .with_source(other)
                .with_hint("check the port, and whether the server wants `tls` = `on`"),
        },
        ConnectionError::IoError(io) if untrusted(&io) => {
            Error::new(ErrorKind::Denied, format!("{doing}: the server's certificate is not trusted: {io}"))
                .with_hint("name its CA with `tls_ca_file`; the certificate has to name the node's IP address")
        }
        ConnectionError::IoError(io) => Error::unavailable(format!("{doing}: {io}")).with_away(),
        ConnectionError::ConnectTimeout => Error::unavailable(format!("{doing}: no answer in time"))
            .with_away()
            .with_hint("check the hosts and ports, and whether the server wants `tls` = `on`"),
        other => Error::unavailable(doing).with_source(other),
    }
}

const SHOW: &str =
    "`tls_client_cert` and `tls_client_key` name a certificate of an authority that the server trusts";

/// Whether the connection was there and ended without a word of CQL.
fn is_cut(error: &ConnectionError) -> bool {
    match error {
        ConnectionError::BrokenConnection(_) | ConnectionError::IoError(_) => true,
        ConnectionError::ConnectionSetupRequestError(setup) => {
            matches!(setup.error, ConnectionSetupRequestErrorKind::BrokenConnection(_))
        }
        _ => false,
    }
}

/// What the other side of TLS said when it ended the connection, if that still reached us.
fn alert(broken: &BrokenConnectionError) -> Option<String> {
    let (BrokenConnectionErrorKind::FrameHeaderParseError(FrameHeaderParseError::HeaderIoError(io))
    | BrokenConnectionErrorKind::WriteError(io)) = broken.downcast_ref()?
    else {
        return None;
    };
    untrusted(io).then(|| io.to_string())
}

/// Whether TLS ended because one side does not trust the other.
fn untrusted(error: &std::io::Error) -> bool {
    let tls = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    matches!(
        tls,
        Some(
            rustls::Error::InvalidCertificate(_)
                | rustls::Error::AlertReceived(_)
                | rustls::Error::NoCertificatesPresented
        )
    )
}

/// What the server said.
fn database(doing: &str, kind: &DbError, why: &str) -> Error {
    let message = format!("{doing}: {why}");
    match kind {
        DbError::AuthenticationError | DbError::Unauthorized => Error::new(ErrorKind::Denied, message),
        DbError::Overloaded | DbError::RateLimitReached { .. } => {
            Error::unavailable(message).with_throttle(Duration::ZERO)
        }
        // None of the nodes that have the row is there, or this one is not ready yet.
        DbError::Unavailable { .. } | DbError::IsBootstrapping => Error::unavailable(message).with_away(),
        DbError::SyntaxError
        | DbError::Invalid
        | DbError::ConfigError
        | DbError::AlreadyExists { .. }
        | DbError::FunctionFailure { .. } => Error::invalid_config(message),
        _ => Error::unavailable(message),
    }
}

fn attempt(doing: &str, error: RequestAttemptError) -> Error {
    match error {
        RequestAttemptError::DbError(kind, why) => database(doing, &kind, &why),
        // Every connection has as many requests in flight as the protocol can number.
        RequestAttemptError::UnableToAllocStreamId => {
            Error::unavailable(format!("{doing}: too many requests in flight")).with_throttle(Duration::ZERO)
        }
        RequestAttemptError::SerializationError(_) | RequestAttemptError::CqlRequestSerialization(_) => {
            Error::invalid_config(format!("{doing}: the value cannot be sent")).with_source(error)
        }
        RequestAttemptError::CqlResultParseError(_)
        | RequestAttemptError::CqlErrorParseError(_)
        | RequestAttemptError::BodyExtensionsParseError(_) => {
            Error::corrupt(format!("{doing}: the answer cannot be read")).with_source(error)
        }
        other => {
            Error::unavailable(format!("{doing}: the connection was lost")).with_source(other).with_away()
        }
    }
}

/// A request that failed on every node it was tried on.
pub(super) fn execute(doing: &str, error: ExecutionError) -> Error {
    match error {
        ExecutionError::LastAttemptError(error) => attempt(doing, error),
        ExecutionError::ConnectionPoolError(error) => pool(doing, error),
        ExecutionError::PrepareError(error) => prepare(doing, error),
        ExecutionError::RequestTimeout(limit) => late(doing, limit),
        ExecutionError::BadQuery(_) => {
            Error::invalid_config(format!("{doing}: the value cannot be sent")).with_source(error)
        }
        ExecutionError::EmptyPlan => no_node(doing),
        other => Error::unavailable(doing).with_source(other),
    }
}

pub(super) fn prepare(doing: &str, error: PrepareError) -> Error {
    match error {
        PrepareError::AllAttemptsFailed { first_attempt } => attempt(doing, first_attempt),
        PrepareError::ConnectionPoolError(error) => pool(doing, error),
        other => Error::unavailable(doing).with_source(other),
    }
}

pub(super) fn pager(doing: &str, error: PagerExecutionError) -> Error {
    match error {
        PagerExecutionError::PrepareError(error) => prepare(doing, error),
        PagerExecutionError::NextPageError(error) => page(doing, error),
        other => Error::unavailable(doing).with_source(other),
    }
}

pub(super) fn row(doing: &str, error: NextRowError) -> Error {
    match error {
        NextRowError::NextPageError(error) => page(doing, error),
        other => Error::corrupt(format!("{doing}: a row cannot be read")).with_source(other),
    }
}

fn page(doing: &str, error: NextPageError) -> Error {
    match error {
        NextPageError::RequestFailure(RequestError::LastAttemptError(error)) => attempt(doing, error),
        NextPageError::RequestFailure(RequestError::ConnectionPoolError(error)) => pool(doing, error),
        NextPageError::RequestFailure(RequestError::RequestTimeout(limit)) => late(doing, limit),
        NextPageError::RequestFailure(RequestError::EmptyPlan) => no_node(doing),
        other => Error::corrupt(format!("{doing}: the answer cannot be read")).with_source(other),
    }
}

fn late(doing: &str, limit: Duration) -> Error {
    Error::unavailable(format!("{doing}: no answer in {} s", limit.as_secs()))
        .with_hint("option `request_timeout` sets how many seconds a request may take")
}

fn no_node(doing: &str) -> Error {
    Error::unavailable(format!("{doing}: there is no node to ask"))
        .with_away()
        .with_hint("check that the cluster has a data center of the name in `local_dc`")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_for_too_many_requests_is_told_from_others() {
        let over = attempt("read", RequestAttemptError::DbError(DbError::Overloaded, "busy".into()));
        assert_eq!((over.kind(), over.throttled()), (ErrorKind::Unavailable, Some(Duration::ZERO)));
        let full = attempt("read", RequestAttemptError::UnableToAllocStreamId);
        assert_eq!((full.kind(), full.throttled()), (ErrorKind::Unavailable, Some(Duration::ZERO)));
        let late = execute("read", ExecutionError::RequestTimeout(Duration::from_secs(3)));
        assert_eq!((late.kind(), late.throttled()), (ErrorKind::Unavailable, None));
        assert!(late.message().contains("3 s"));
    }

    #[test]
    fn what_the_server_says_decides_what_can_be_done() {
        let said = |kind| database("read", &kind, "why").kind();
        assert_eq!(said(DbError::Unauthorized), ErrorKind::Denied);
        assert_eq!(said(DbError::Invalid), ErrorKind::InvalidConfig);
        assert_eq!(said(DbError::IsBootstrapping), ErrorKind::Unavailable);
        assert_eq!(said(DbError::ServerError), ErrorKind::Unavailable);
    }
}
