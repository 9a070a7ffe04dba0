//! A CA for one broker, and the broker's certificate.

use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose,
};

use super::error::BrokerError;

/// What a broker on this machine is called by its clients, through a link or not.
const NAMES: [&str; 2] = ["localhost", "127.0.0.1"];
const CA: &str = "ca.pem";
/// The broker's key and certificate.
pub(super) const KEYSTORE: &str = "server.pem";

/// Makes a CA, and with it what the broker shows its clients. Returns the file with the CA's certificate; its key is
/// forgotten.
pub(super) fn write(directory: &Path) -> Result<PathBuf, BrokerError> {
    let (ca, keystore) = make().map_err(BrokerError::Certificates)?;
    let ca_file = directory.join(CA);
    for (path, content) in [(&ca_file, ca), (&directory.join(KEYSTORE), keystore)] {
        std::fs::write(path, content).map_err(BrokerError::io("write a certificate"))?;
    }
    Ok(ca_file)
}

fn make() -> Result<(String, String), rcgen::Error> {
    let mut params = CertificateParams::new(Vec::new())?;
    params.distinguished_name.push(DnType::CommonName, "outbox-local CA");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let ca = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;

    let mut params = CertificateParams::new(NAMES.map(str::to_owned))?;
    params.distinguished_name.push(DnType::CommonName, "outbox-local broker");
    params.use_authority_key_identifier_extension = true;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let key = KeyPair::generate()?;
    let certificate = params.signed_by(&key, &ca)?;
    Ok((ca.pem(), format!("{}{}{}", key.serialize_pem(), certificate.pem(), ca.pem())))
}
