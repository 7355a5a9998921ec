//! Credentials made for a service that has none yet: a token, and a certificate for all its processes.
//!
//! The authority signs one certificate and is then forgotten, so nobody can be added later who was not given that
//! certificate: it proves that its owner belongs to the service, not which process it is. Every certificate carries
//! [`MEMBER_NAME`], so that processes need not know each other's addresses beforehand.

use crate::handshake::random;
use forebay_core::{Error, Result};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, date_time_ymd,
};
use std::fmt::{self, Write as _};
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, SystemTime};

/// The name in every certificate that is made here: what `tls_name` is to be.
pub const MEMBER_NAME: &str = "forebay";

/// Clocks of machines may differ by this much.
const SKEW: Duration = Duration::from_secs(3600);

/// What all processes of a service are given. Its secrets are never shown.
#[derive(Clone)]
pub struct MadeCredentials {
    /// The secret that all of them know.
    pub token: String,
    /// The certificate of the authority, in PEM.
    pub ca: String,
    /// The certificate of every process, in PEM.
    pub cert: String,
    /// Its key, in PEM.
    pub key: String,
}

impl fmt::Debug for MadeCredentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MadeCredentials")
    }
}

impl MadeCredentials {
    /// Good for so many days. `names` are hosts and addresses that the certificate is to have beside [`MEMBER_NAME`].
    pub fn new(names: &[String], days: u32) -> Result<Self> {
        let fail = |error: rcgen::Error| Error::invalid_config("make certificates").with_source(error);
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let epoch = date_time_ymd(1970, 1, 1);
        let time = |params: &mut CertificateParams| {
            params.not_before = epoch + now.saturating_sub(SKEW);
            params.not_after = epoch + now + Duration::from_secs(u64::from(days) * 86_400);
        };
        let authority_key = KeyPair::generate().map_err(fail)?;
        let mut authority = CertificateParams::new(Vec::new()).map_err(fail)?;
        authority.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        authority.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        authority.distinguished_name.push(DnType::CommonName, "forebay service");
        time(&mut authority);
        let ca = authority.self_signed(&authority_key).map_err(fail)?.pem();
        let issuer = Issuer::new(authority, &authority_key);

        let key = KeyPair::generate().map_err(fail)?;
        let names = [&[MEMBER_NAME.to_owned()], names].concat();
        let mut member = CertificateParams::new(names).map_err(fail)?;
        member.distinguished_name.push(DnType::CommonName, MEMBER_NAME);
        member.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        member.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        time(&mut member);
        let cert = member.signed_by(&key, &issuer).map_err(fail)?.pem();
        let mut token = String::new();
        for byte in random()? {
            // Writing to a string cannot fail.
            let _ = write!(token, "{byte:02x}");
        }
        Ok(Self { token, ca, cert, key: key.serialize_pem() })
    }

    /// Files by name.
    pub fn files(&self) -> [(&'static str, &str); 4] {
        [("token", &self.token), ("ca.pem", &self.ca), ("cert.pem", &self.cert), ("key.pem", &self.key)]
    }

    /// Writes them into a folder that only this user reads. What is there already is left alone: an error.
    pub fn write(&self, folder: &Path) -> Result<()> {
        let fail = |path: &Path| {
            let what = format!("write credentials to `{}`", path.display());
            move |error| Error::io(what, error)
        };
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(fail(folder))?;
        for (name, _) in self.files() {
            let path = folder.join(name);
            if path.symlink_metadata().is_ok() {
                let why = format!("write credentials to `{}`: it is there already", path.display());
                return Err(Error::invalid_config(why).with_hint("use what is there, or name another folder"));
            }
        }
        for (name, text) in self.files() {
            let path = folder.join(name);
            let mut options = std::fs::OpenOptions::new();
            let file = options.write(true).create_new(true).mode(0o600).open(&path);
            file.and_then(|mut file| file.write_all(text.as_bytes())).map_err(fail(&path))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::credentials::{PeerTls, Token};
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn what_is_made_is_for_this_user_only_and_can_be_used() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("new");
        let made = MadeCredentials::new(&["node-1".into(), "10.0.0.1".into()], 30).unwrap();
        made.write(&folder).unwrap();
        for (name, text) in made.files() {
            let path = folder.join(name);
            assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
            assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600, "{name}");
        }
        assert_eq!(folder.metadata().unwrap().permissions().mode() & 0o777, 0o700);
        assert!(Token::from_file(&folder.join("token")).is_ok());
        let tls = PeerTls {
            ca_file: folder.join("ca.pem"),
            cert: folder.join("cert.pem"),
            key: folder.join("key.pem"),
            name: Some(MEMBER_NAME.into()),
        };
        assert!(tls.client().is_ok() && tls.server().is_ok());
        let error = made.write(&folder).unwrap_err();
        assert!(error.message().contains("it is there already"), "{error}");
        assert!(!format!("{made:?}").contains(&made.token));
    }

    #[test]
    fn no_two_are_the_same_and_a_bad_name_is_refused() {
        let one = MadeCredentials::new(&[], 1).unwrap();
        let other = MadeCredentials::new(&[], 1).unwrap();
        assert_ne!((&one.token, &one.key), (&other.token, &other.key));
        assert!(MadeCredentials::new(&["knödel".into()], 1).is_err());
    }
}
