//! Words, spellings and refusals, without a server and without this machine's environment.

use super::*;
use forebay_core::ErrorKind;

fn options(pairs: &[(&str, &str)]) -> StoreOptions {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn place(pairs: &[(&str, &str)]) -> Result<Place> {
    Place::with(AmazonS3Builder::new(), "s3://data", "data", &options(pairs))
}

fn key_of(place: &Place) -> Arc<AwsCredential> {
    let provider = place.credentials.clone().unwrap();
    futures::executor::block_on(provider.get_credential()).unwrap()
}

#[test]
fn buckets_are_below_the_endpoint_or_before_its_host() {
    let url = |pairs: &[(&str, &str)]| {
        let mut all = vec![("anonymous", "true")];
        all.extend_from_slice(pairs);
        place(&all).unwrap().bucket_url
    };
    assert_eq!(url(&[]), "https://s3.us-east-1.amazonaws.com/data");
    assert_eq!(url(&[("region", "eu-west-1")]), "https://s3.eu-west-1.amazonaws.com/data");
    assert_eq!(url(&[("virtual_hosted_style", "true")]), "https://data.s3.us-east-1.amazonaws.com");
    assert_eq!(url(&[("endpoint", "http://127.0.0.1:9000/")]), "http://127.0.0.1:9000/data");
    assert_eq!(url(&[("endpoint_url", "https://s3.example")]), "https://s3.example/data");
    let virtual_hosted = [("endpoint", "https://s3.example:8443"), ("virtual_hosted_style", "1")];
    assert_eq!(url(&virtual_hosted), "https://data.s3.example:8443");
    let named = [("endpoint", "https://data.s3.example"), ("virtual_hosted_style", "yes")];
    assert_eq!(url(&named), "https://data.s3.example");
}

#[test]
fn keys_have_the_spellings_of_boto_and_s3fs_and_words_win_over_the_environment() {
    for names in [
        ("access_key_id", "secret_access_key"),
        ("key", "secret"),
        ("aws_access_key_id", "aws_secret_access_key"),
    ] {
        let found = key_of(&place(&[(names.0, "me"), (names.1, "hush"), ("token", "t")]).unwrap());
        assert_eq!(
            (found.key_id.as_str(), found.secret_key.as_str(), found.token.as_deref()),
            ("me", "hush", Some("t"))
        );
    }
    let environment = AmazonS3Builder::new()
        .with_access_key_id("theirs")
        .with_secret_access_key("theirs")
        .with_token("theirs")
        .with_region("eu-north-1")
        .with_config(Key::S3Endpoint, "https://theirs.example");
    let words = options(&[("key", "me"), ("secret", "hush"), ("endpoint", "https://mine.example")]);
    let place = Place::with(environment.clone(), "s3://data", "data", &words).unwrap();
    assert_eq!((place.endpoint.as_str(), place.region.as_str()), ("https://mine.example", "eu-north-1"));
    // The token belongs to the other key.
    assert_eq!((key_of(&place).key_id.as_str(), key_of(&place).token.as_deref()), ("me", None));
    let place = Place::with(environment, "s3://data", "data", &StoreOptions::new()).unwrap();
    assert_eq!(
        (key_of(&place).token.as_deref(), place.endpoint.as_str()),
        (Some("theirs"), "https://theirs.example")
    );
}

#[test]
fn plain_http_beyond_this_machine_has_to_be_wanted() {
    let open = |endpoint: &str, allow: &str| {
        place(&[("endpoint", endpoint), ("anon", "true"), ("allow_http", allow)])
    };
    for here in ["http://127.0.0.1:9", "http://localhost:9", "http://[::1]:9", "https://far.example"] {
        assert!(open(here, "false").is_ok(), "{here}");
    }
    let error = open("http://far.example", "false").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidConfig);
    assert!(error.hint().unwrap().contains("allow_http"));
    assert!(open("http://far.example", "true").is_ok());
    for bad in
        ["far.example", "ftp://far.example", "https://me:hush@far.example", "https://far.example?x=hush"]
    {
        let error = open(bad, "true").unwrap_err();
        assert!(
            error.kind() == ErrorKind::InvalidConfig && !error.report().contains("hush"),
            "{bad}: {error:?}"
        );
    }
}

#[test]
fn unknown_words_are_refused_with_the_known_ones_and_values_are_never_shown() {
    let error = place(&[("secrte", "hush")]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidConfig);
    assert!(error.message().contains("`secrte`") && error.hint().unwrap().contains("secret_access_key"));
    assert!(!error.report().contains("hush"));
    for half in [("key", "secret"), ("secret", "access_key_id")] {
        let error = place(&[(half.0, "hush")]).unwrap_err();
        assert!(error.kind() == ErrorKind::InvalidConfig && !error.report().contains("hush"));
    }
    let shown = format!("{:?}", place(&[("key", "hush-id"), ("secret", "hush")]).unwrap());
    assert!(!shown.contains("hush"), "{shown}");
    assert!(place(&[("anonymous", "perhaps")]).is_err());
    assert!(Place::with(AmazonS3Builder::new(), "s3://a@b", "a@b", &StoreOptions::new()).is_err());
}

/// Answers as the service does that tells a machine its role, and says what it was asked.
async fn role_service(listener: tokio::net::TcpListener, asked: tokio::sync::mpsc::UnboundedSender<String>) {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let secret =
        r#"{"AccessKeyId":"AK","SecretAccessKey":"SK","Token":"TK","Expiration":"2099-01-01T00:00:00Z"}"#;
    while let Ok((mut stream, _)) = listener.accept().await {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await.unwrap());
        }
        let head = String::from_utf8(head).unwrap();
        let line = head.lines().next().unwrap().to_owned();
        let body = match line.as_str() {
            "PUT /latest/api/token HTTP/1.1" => "TICKET",
            "GET /latest/meta-data/iam/security-credentials/ HTTP/1.1" => "trainer",
            _ => secret,
        };
        let ticket =
            if head.to_ascii_lowercase().contains("metadata-token: ticket") { " with ticket" } else { "" };
        asked.send(line + ticket).unwrap();
        let answer =
            format!("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}", body.len());
        stream.write_all(answer.as_bytes()).await.unwrap();
    }
}

#[tokio::test]
async fn a_machine_without_keys_asks_for_those_of_its_role() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let (sender, mut asked) = tokio::sync::mpsc::unbounded_channel();
    let service = tokio::spawn(role_service(listener, sender));
    let place = place(&[("aws_metadata_endpoint", &endpoint)]).unwrap();
    let key = place.credentials.unwrap().get_credential().await.unwrap();
    assert_eq!(
        (key.key_id.as_str(), key.secret_key.as_str(), key.token.as_deref()),
        ("AK", "SK", Some("TK"))
    );
    service.abort();
    let requests: Vec<_> = std::iter::from_fn(|| asked.try_recv().ok()).collect();
    let path = "GET /latest/meta-data/iam/security-credentials/";
    assert_eq!(
        requests,
        [
            "PUT /latest/api/token HTTP/1.1".to_owned(),
            format!("{path} HTTP/1.1 with ticket"),
            format!("{path}trainer HTTP/1.1 with ticket"),
        ]
    );
}
