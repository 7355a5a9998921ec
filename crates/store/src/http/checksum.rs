//! Whether bytes are those that the server says it keeps: checksums that come along with an object.
//!
//! They are of the whole object, so a range of it cannot be checked. Which ones are compared is a question of cost:
//! CRCs and xxHash run at memory speed and are on by default, SHA-256 takes as long as the rest of a read together and
//! has to be asked for. MD5 and SHA-1 are not computed at all. Checksums of uploads in parts (`-N` behind the value) are
//! not those of the bytes and are passed over.

use super::head::Headers;
#[cfg(feature = "s3")]
use super::text::base64;
use super::text::{from_base64, from_hex};
use crate::StoreOptions;
use crc_fast::CrcAlgorithm;
use forebay_core::{Error, Result};
use rustls::crypto::ring::cipher_suite::TLS13_AES_128_GCM_SHA256;
use xxhash_rust::xxh64::xxh64;

/// An object whose bytes differ from their checksum is read so often before that is taken for a fact.
const MOST_READS: u32 = 3;

/// Which checksums are compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Checksums {
    /// None, and none is asked for.
    Off,
    /// CRC-32, CRC-32C, CRC-64/NVME and xxHash, at several GB/s.
    #[default]
    Fast,
    /// SHA-256 as well, where nothing faster is told.
    All,
}

impl Checksums {
    /// Option `checksums`: `off`, `fast` or `all`.
    pub(crate) fn from_words(words: &StoreOptions) -> Result<Self> {
        match words.get("checksums").map(|word| word.trim().to_ascii_lowercase()).as_deref() {
            None | Some("fast") => Ok(Self::Fast),
            Some("all") => Ok(Self::All),
            Some("off") => Ok(Self::Off),
            Some(other) => Err(Error::invalid_config(format!(
                "read option `checksums`: `{other}` is not `fast`, `all` or `off`"
            ))),
        }
    }
}

/// What a server told about the bytes of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    Crc32(u32),
    Crc32c(u32),
    Crc64Nvme(u64),
    Xxh64(u64),
    Sha256([u8; 32]),
}

impl Told {
    /// The checksum in the head of an answer whose body is a whole object.
    pub(crate) fn of(headers: &Headers, wanted: Checksums) -> Option<Self> {
        if wanted == Checksums::Off {
            return None;
        }
        let (mut found, mut ais_type) = (None, None);
        for (name, value) in headers.iter() {
            let told = match name.len() {
                // Google keeps some objects packed and sends them unpacked: its checksum is of what it keeps.
                30 if is(name, "x-goog-stored-content-encoding") && !is(value, "identity") => return None,
                11 if is(name, "repr-digest") => digests(value),
                6 if is(name, "digest") => digests(value),
                11 if is(name, "x-goog-hash") => digests(value),
                17.. if name.get(..15).is_some_and(|start| is(start, "x-amz-checksum-")) => {
                    Self::named(name.get(15..)?, value)
                }
                17 if is(name, "ais-checksum-type") => {
                    ais_type = Some(value);
                    None
                }
                _ => None,
            };
            found = better(found, told);
        }
        if let (Some(kind), Some(value)) = (ais_type, headers.get("ais-checksum-value")) {
            found = better(found, Self::of_ais(kind, value));
        }
        found.filter(|told| wanted == Checksums::All || !matches!(told, Self::Sha256(_)))
    }

    /// A name as Amazon, Google and RFC 9530 write them, and its value in base64.
    fn named(name: &str, value: &str) -> Option<Self> {
        match () {
            () if is(name, "crc32") => from_base64(value).map(u32::from_be_bytes).map(Self::Crc32),
            () if is(name, "crc32c") => from_base64(value).map(u32::from_be_bytes).map(Self::Crc32c),
            () if is(name, "crc64nvme") => from_base64(value).map(u64::from_be_bytes).map(Self::Crc64Nvme),
            () if is(name, "sha256") || is(name, "sha-256") => from_base64(value).map(Self::Sha256),
            () => None,
        }
    }

    /// As AIStore writes them: in hexadecimal digits. Its `xxhash2` is XXH64.
    fn of_ais(kind: &str, value: &str) -> Option<Self> {
        match kind {
            "xxhash2" => from_hex(value).map(u64::from_be_bytes).map(Self::Xxh64),
            "crc32c" => from_hex(value).map(u32::from_be_bytes).map(Self::Crc32c),
            // What it calls `sha256` is SHA-512/256.
            _ => None,
        }
    }

    /// Compares.
    pub(crate) fn is_of(self, bytes: &[u8]) -> bool {
        match self {
            Self::Crc32(told) => crc(CrcAlgorithm::Crc32IsoHdlc, bytes) == u64::from(told),
            Self::Crc32c(told) => crc(CrcAlgorithm::Crc32Iscsi, bytes) == u64::from(told),
            Self::Crc64Nvme(told) => crc(CrcAlgorithm::Crc64Nvme, bytes) == told,
            Self::Xxh64(told) => xxh64(bytes, 0) == told,
            Self::Sha256(told) => sha256(bytes).is_some_and(|found| found == told),
        }
    }

    /// After bytes that differ from it: counts one more read, or is an error when there were enough.
    pub(crate) fn differs(self, size: u64, reads: &mut u32) -> Result<()> {
        if *reads < MOST_READS {
            *reads += 1;
            tracing::warn!(
                checksum = self.name(),
                size,
                "bytes differ from their checksum and are read again"
            );
            return Ok(());
        }
        let why =
            format!("{reads} reads of its {size} bytes differ from the {} that came with them", self.name());
        let hint = "the object is damaged where it is stored, or something on the way changes it";
        Err(Error::corrupt(why).with_hint(hint))
    }

    /// As messages name it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Crc32(_) => "CRC-32",
            Self::Crc32c(_) => "CRC-32C",
            Self::Crc64Nvme(_) => "CRC-64/NVME",
            Self::Xxh64(_) => "xxHash",
            Self::Sha256(_) => "SHA-256",
        }
    }
}

/// CRC-32C as S3 wants it in a header.
#[cfg(feature = "s3")]
pub(crate) fn crc32c_text(bytes: &[u8]) -> String {
    base64(&(crc(CrcAlgorithm::Crc32Iscsi, bytes) as u32).to_be_bytes())
}

/// SHA-256 by the TLS library.
pub(crate) fn sha256(bytes: &[u8]) -> Option<[u8; 32]> {
    let suite = TLS13_AES_128_GCM_SHA256.tls13()?;
    suite.common.hash_provider.hash(bytes).as_ref().try_into().ok()
}

fn crc(algorithm: CrcAlgorithm, bytes: &[u8]) -> u64 {
    crc_fast::checksum(algorithm, bytes)
}

fn is(one: &str, other: &str) -> bool {
    one.eq_ignore_ascii_case(other)
}

/// A list such as `crc32c=AAAAAA==, sha-256=:...:`: the best of it.
fn digests(list: &str) -> Option<Told> {
    let each = list.split(',').filter_map(|item| item.trim().split_once('='));
    let unquoted = |value: &str| {
        value.strip_prefix(':').and_then(|value| value.strip_suffix(':')).unwrap_or(value).to_owned()
    };
    each.map(|(name, value)| Told::named(name, &unquoted(value))).fold(None, better)
}

/// The cheaper of two.
fn better(one: Option<Told>, other: Option<Told>) -> Option<Told> {
    match (one, other) {
        (Some(Told::Sha256(_)) | None, Some(other)) => Some(other),
        (one, _) => one,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::head;
    use bytes::Bytes;
    use proptest::prelude::*;

    const BYTES: &[u8] = b"123456789";
    /// The values that the definitions of these checksums give for [`BYTES`].
    const TOLD: &[(&str, &str)] = &[
        ("x-amz-checksum-crc32: y/Q5Jg==", "CRC-32"),
        ("X-Amz-Checksum-Crc32c: 4waSgw==", "CRC-32C"),
        ("x-amz-checksum-crc64nvme: rosUhgp5mIg=", "CRC-64/NVME"),
        ("x-goog-hash: crc32c=4waSgw==,md5=JfnnlDI7RTiF9RgfGNLUfw==", "CRC-32C"),
        ("digest: md5=x, CRC32C=4waSgw==", "CRC-32C"),
        ("repr-digest: sha-256=:FeKw08M4keuw8e9gnsQZQgwg4yDOlMZfvIwzEkSOsiU=:", "SHA-256"),
        ("x-amz-checksum-sha256: FeKw08M4keuw8e9gnsQZQgwg4yDOlMZfvIwzEkSOsiU=", "SHA-256"),
        ("ais-checksum-type: xxhash2\r\nais-checksum-value: 8cb841db40e6ae83", "xxHash"),
        ("ais-checksum-value: e3069283\r\nais-checksum-type: crc32c", "CRC-32C"),
    ];

    fn told(lines: &str, wanted: Checksums) -> Option<Told> {
        let head = format!("HTTP/1.1 200 OK\r\netag: x\r\n{lines}\r\n\r\n");
        Told::of(&head::parse(&Bytes::from(head)).unwrap().headers, wanted)
    }

    #[test]
    fn checksums_are_found_wherever_servers_put_them_and_fit_the_bytes_alone() {
        for (lines, name) in TOLD {
            let found = told(lines, Checksums::All).unwrap_or_else(|| panic!("{lines}"));
            assert_eq!(found.name(), *name, "{lines}");
            assert!(found.is_of(BYTES) && !found.is_of(b"123456780") && !found.is_of(b""), "{lines}");
            assert_eq!(told(lines, Checksums::Off), None);
            assert_eq!(told(lines, Checksums::Fast).is_some(), *name != "SHA-256", "{lines}");
        }
        let both = "x-amz-checksum-sha256: FeKw08M4keuw8e9gnsQZQgwg4yDOlMZfvIwzEkSOsiU=\r\nx-amz-checksum-crc32: y/Q5Jg==";
        assert_eq!(told(both, Checksums::All).map(Told::name), Some("CRC-32"), "the cheaper one");
        #[cfg(feature = "s3")]
        assert_eq!(crc32c_text(BYTES), "4waSgw==");
    }

    #[test]
    fn what_is_not_of_the_bytes_is_passed_over() {
        for lines in [
            "x-amz-checksum-crc32c: 4waSgw==-3",
            "x-amz-checksum-crc32c: 4waSg",
            "x-amz-checksum-type: COMPOSITE",
            "x-amz-checksum-sha1: x",
            "ais-checksum-type: none\r\nais-checksum-value: 8cb841db40e6ae83",
            "ais-checksum-type: xxhash2",
            "ais-checksum-type: sha256\r\nais-checksum-value: 15e2b0d3c33891ebb0f1ef609ec419420c20e320ce94c65fbc8c3312448eb225",
            "x-goog-hash: crc32c=4waSgw==\r\nx-goog-stored-content-encoding: gzip",
            "content-md5: JfnnlDI7RTiF9RgfGNLUfw==",
            "digest: crc32c",
        ] {
            assert_eq!(told(lines, Checksums::All), None, "{lines}");
        }
        let words = |word: &str| Checksums::from_words(&[("checksums".to_owned(), word.to_owned())].into());
        assert_eq!(words("off").unwrap(), Checksums::Off);
        assert!(words("md5").is_err());
    }

    proptest! {
        #[test]
        fn no_header_makes_it_panic(name in "(digest|x-amz-checksum-|x-goog-hash|x-amz-checksum-crc32)", value in "[ -~]{0,60}") {
            let _ = told(&format!("{name}: {value}"), Checksums::All);
        }
    }
}
