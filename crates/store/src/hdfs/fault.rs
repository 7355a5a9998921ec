//! What errors of HDFS mean: its NameNode names Java classes, and the client sorts by where an error came up.

use crate::fault;
use forebay_core::{Error, ErrorKind};
use hdfs_native::HdfsError;

const NO_FOLDER: &str = "(is not a directory)";

/// The error of a request, for the object at `url`.
pub(super) fn refused(error: &HdfsError, doing: &str, url: &str) -> Error {
    let kind = match error {
        HdfsError::FileNotFound(_) | HdfsError::IsADirectoryError(_) => ErrorKind::NotFound,
        // So it says that a file has nothing below it.
        HdfsError::RPCError(_, why) if why.lines().next().is_some_and(|why| why.ends_with(NO_FOLDER)) => {
            ErrorKind::NotFound
        }
        HdfsError::RPCError(class, _) | HdfsError::FatalRPCError(class, _) => of_class(class),
        HdfsError::SASLError(_) | HdfsError::GSSAPIError(..) | HdfsError::NoSASLMechanism => {
            ErrorKind::Denied
        }
        HdfsError::ChecksumError => ErrorKind::Corrupt,
        HdfsError::InvalidPath(_) | HdfsError::InvalidArgument(_) | HdfsError::UrlParseError(_) => {
            ErrorKind::InvalidConfig
        }
        HdfsError::UnsupportedErasureCodingPolicy(_) | HdfsError::UnsupportedFeature(_) => {
            ErrorKind::Unsupported
        }
        // Connections, DataNodes, blocks that are being moved: another time it may work.
        _ => ErrorKind::Unavailable,
    };
    if kind == ErrorKind::NotFound && doing != "write" {
        return fault::missing(doing, url);
    }
    // The server's words go on for a page of Java; its first line says it.
    let text = error.to_string();
    let why = text.lines().next().unwrap_or_default();
    let ours = Error::new(kind, format!("{doing} `{url}`: {why}")).with_facts(fault::facts(url, None));
    match kind {
        ErrorKind::Denied => {
            ours.with_hint("check option `user` and what it may read there, or the Kerberos ticket")
        }
        _ => ours,
    }
}

fn of_class(class: &str) -> ErrorKind {
    match class.rsplit('.').next().unwrap_or_default() {
        "FileNotFoundException" | "ParentNotDirectoryException" | "PathIsNotDirectoryException" => {
            ErrorKind::NotFound
        }
        "AccessControlException" | "AuthorizationException" | "SaslException" | "InvalidToken" => {
            ErrorKind::Denied
        }
        "InvalidPathException" | "IllegalArgumentException" | "PathComponentTooLongException" => {
            ErrorKind::InvalidConfig
        }
        "NSQuotaExceededException" | "DSQuotaExceededException" => ErrorKind::Exhausted,
        _ => ErrorKind::Unavailable,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_name_node_says_decides_what_can_be_done() {
        let said = |class: &str| {
            let error =
                HdfsError::RPCError(format!("org.apache.hadoop.{class}"), "why\n\tat java".to_owned());
            refused(&error, "read", "hdfs://a/b")
        };
        assert_eq!(said("fs.FileNotFoundException").kind(), ErrorKind::NotFound);
        assert_eq!(said("security.AccessControlException").kind(), ErrorKind::Denied);
        assert_eq!(said("hdfs.server.namenode.SafeModeException").kind(), ErrorKind::Unavailable);
        let below = HdfsError::RPCError("a.AccessControlException".into(), format!("/a {NO_FOLDER}\n\tat"));
        assert_eq!(refused(&below, "read", "hdfs://a/b").kind(), ErrorKind::NotFound);
        assert!(!said("security.AccessControlException").message().contains('\n'));
        assert_eq!(refused(&HdfsError::ChecksumError, "read", "a").kind(), ErrorKind::Corrupt);
    }
}
