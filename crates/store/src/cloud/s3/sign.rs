//! Signatures of requests (AWS Signature Version 4), cheap enough for the hot path.
//!
//! The key that signs depends on credential, day and region only, so it is derived once a day and kept; a signature is
//! then two hashes. What `object_store` computes is the same, as a test shows, at several times the cost. Hashes are those
//! of the TLS library.

use crate::http::checksum::sha256;
use forebay_core::{Error, Result};
use object_store::aws::AwsCredential;
use rustls::crypto::ring::cipher_suite::TLS13_AES_128_GCM_SHA256;
use rustls::crypto::tls13::OkmBlock;
use std::fmt::Write;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};
use url::{Position, Url};

/// The hash of a body without bytes.
const EMPTY: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
/// Said instead of the hash of a body.
const UNSIGNED: &str = "UNSIGNED-PAYLOAD";
/// Keys of a MAC that are longer are hashed first.
const BLOCK_BYTES: usize = 64;

/// Headers to send.
pub(super) type Headers = Vec<(&'static str, String)>;

/// Signs requests to one region.
pub(super) struct Signer {
    region: String,
    payer: bool,
    key: Mutex<Option<Arc<DayKey>>>,
}

struct DayKey {
    credential: Arc<AwsCredential>,
    day: String,
    key: OkmBlock,
}

impl Signer {
    /// `payer`: the headers say that we pay for the request.
    pub(super) fn new(region: String, payer: bool) -> Self {
        Self { region, payer, key: Mutex::default() }
    }

    /// The headers that sign a request now, with `amz` among them. The parts of its query have to be encoded and in
    /// order.
    pub(super) fn sign(
        &self,
        credential: &Arc<AwsCredential>,
        method: &str,
        url: &Url,
        body: &[u8],
        amz: Headers,
    ) -> Result<Headers> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        self.sign_at(credential, method, url, body, amz, &stamp(now))
    }

    fn sign_at(
        &self,
        credential: &Arc<AwsCredential>,
        method: &str,
        url: &Url,
        body: &[u8],
        amz: Headers,
        stamp: &str,
    ) -> Result<Headers> {
        // TLS already guards a body against change on the way; hashing it as well costs a core.
        let digest = match (body.is_empty(), url.scheme()) {
            (true, _) => EMPTY.to_owned(),
            (false, "https") => UNSIGNED.to_owned(),
            (false, _) => hex(&hash(body)?),
        };
        let day = stamp.get(..8).unwrap_or_default();
        let mut headers = amz;
        headers.extend([("x-amz-content-sha256", digest.clone()), ("x-amz-date", stamp.to_owned())]);
        if self.payer {
            headers.push(("x-amz-request-payer", "requester".to_owned()));
        }
        headers.extend(credential.token.clone().map(|token| ("x-amz-security-token", token)));
        // The signature is of them in the order of their names.
        headers.sort_unstable_by_key(|(name, _)| *name);

        let host = &url[Position::BeforeHost..Position::AfterPort];
        let mut request =
            format!("{method}\n{}\n{}\nhost:{host}\n", url.path(), url.query().unwrap_or_default());
        let mut names = "host".to_owned();
        for (name, value) in &headers {
            let _ = writeln!(request, "{name}:{value}");
            let _ = write!(names, ";{name}");
        }
        let _ = write!(request, "\n{names}\n{digest}");
        let scope = format!("{day}/{}/s3/aws4_request", self.region);
        let text = format!("AWS4-HMAC-SHA256\n{stamp}\n{scope}\n{}", hex(&hash(request.as_bytes())?));
        let signature = hex(&mac(&self.key_of(credential, day)?.key, text.as_bytes())?);
        let who = &credential.key_id;
        let words = format!(
            "AWS4-HMAC-SHA256 Credential={who}/{scope}, SignedHeaders={names}, Signature={signature}"
        );
        headers.push(("authorization", words));
        Ok(headers)
    }

    /// The key of that day, derived when it is first asked for.
    fn key_of(&self, credential: &Arc<AwsCredential>, day: &str) -> Result<Arc<DayKey>> {
        let mut kept = self.key.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(key) =
            kept.as_ref().filter(|key| key.day == day && Arc::ptr_eq(&key.credential, credential))
        {
            return Ok(Arc::clone(key));
        }
        let secret = format!("AWS4{}", credential.secret_key).into_bytes();
        let secret = if secret.len() > BLOCK_BYTES { hash(&secret)? } else { secret };
        let mut key = OkmBlock::new(&secret);
        for part in [day, &self.region, "s3", "aws4_request"] {
            key = OkmBlock::new(&mac(&key, part.as_bytes())?);
        }
        let key = Arc::new(DayKey { credential: Arc::clone(credential), day: day.to_owned(), key });
        *kept = Some(Arc::clone(&key));
        Ok(key)
    }
}

impl std::fmt::Debug for Signer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Signer").field("region", &self.region).finish_non_exhaustive()
    }
}

fn hash(bytes: &[u8]) -> Result<Vec<u8>> {
    Ok(sha256(bytes).ok_or_else(no_hash)?.to_vec())
}

fn mac(key: &OkmBlock, bytes: &[u8]) -> Result<Vec<u8>> {
    let suite = TLS13_AES_128_GCM_SHA256.tls13().ok_or_else(no_hash)?;
    Ok(suite.hkdf_provider.hmac_sign(key, bytes).as_ref().to_vec())
}

fn no_hash() -> Error {
    Error::internal("sign a request: the TLS library has no SHA-256")
}

fn hex(bytes: &[u8]) -> String {
    let digit = |nibble: u8| char::from(b"0123456789abcdef"[usize::from(nibble & 15)]);
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(*byte)]).collect()
}

/// Seconds since 1970 as `20130524T000000Z`.
fn stamp(seconds: u64) -> String {
    let (days, time) = (seconds / 86_400, seconds % 86_400);
    // Years begin in March here, so that the leap day is the last of one; eras are 400 years.
    let shifted = days + 719_468;
    let (era, day) = (shifted / 146_097, shifted % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let date = day - (153 * month + 2) / 5 + 1;
    let (month, carry) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    let year = era * 400 + year + carry;
    format!("{year:04}{month:02}{date:02}T{:02}{:02}{:02}Z", time / 3600, time / 60 % 60, time % 60)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use object_store::aws::AwsAuthorizer;
    use object_store::client::{HttpRequest, HttpRequestBody};

    #[test]
    fn stamps_are_those_of_the_calendar() {
        let cases =
            [(0, "19700101T000000Z"), (951_782_400, "20000229T000000Z"), (1_369_353_600, "20130524T000000Z")];
        for (seconds, text) in cases {
            assert_eq!(stamp(seconds), text);
        }
        assert_eq!(stamp(1_709_251_199), "20240229T235959Z");
        assert_eq!(stamp(1_709_251_200), "20240301T000000Z");
        assert_eq!(stamp(4_102_444_799), "20991231T235959Z");
    }

    #[test]
    fn signatures_are_those_that_object_store_computes() {
        let urls = [
            "http://127.0.0.1:9000/data/a%20b/c%2Bd%0A",
            "https://data.s3.eu-west-1.amazonaws.com/",
            "https://s3.example/data?encoding-type=url&list-type=2&prefix=a%2Fb%20c&start-after=a%2F%C3%BC",
            "http://s3.example/data/a?partNumber=3&uploadId=x%3D%3D",
            "http://s3.example/data/a?uploads=",
        ];
        for secret in ["short".to_owned(), "a".repeat(60), "b".repeat(61), "c".repeat(200)] {
            for (payer, token) in [(false, None), (true, Some("session".to_owned()))] {
                let credential =
                    Arc::new(AwsCredential { key_id: "me".to_owned(), secret_key: secret.clone(), token });
                let signer = Signer::new("eu-west-1".to_owned(), payer);
                for (url, (method, body)) in
                    urls.iter().flat_map(|url| [("GET", ""), ("PUT", "bytes")].map(|what| (url, what)))
                {
                    let url = Url::parse(url).unwrap();
                    let mut draft = HttpRequest::new(HttpRequestBody::from(Bytes::from(body)));
                    *draft.uri_mut() = url.as_str().parse().unwrap();
                    *draft.method_mut() = method.parse().unwrap();
                    AwsAuthorizer::new(&credential, "s3", "eu-west-1")
                        .with_request_payer(payer)
                        .with_sign_payload(body.is_empty() || url.scheme() == "http")
                        .try_authorize(&mut draft, None)
                        .unwrap();
                    let stamp = draft.headers()["x-amz-date"].to_str().unwrap();
                    let ours = signer
                        .sign_at(&credential, method, &url, body.as_bytes(), Vec::new(), stamp)
                        .unwrap();
                    assert_eq!(ours.len(), draft.headers().len(), "{url}");
                    for (name, value) in ours {
                        assert_eq!(
                            value,
                            draft.headers()[name].to_str().unwrap(),
                            "{name} of {method} {url}"
                        );
                    }
                }
            }
        }
    }
}
