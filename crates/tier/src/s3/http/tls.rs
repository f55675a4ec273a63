//! Whom we believe: certificates of the system, or those of a file.

use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore, crypto};

/// Trusts what `ca_file` holds, or what the system trusts.
///
/// # Errors
/// An explanation, when no certificate at all could be read.
pub(in crate::s3) fn client_config(ca_file: Option<&Path>) -> Result<Arc<ClientConfig>, String> {
    let mut roots = RootCertStore::empty();
    match ca_file {
        Some(path) => {
            let shown = path.display();
            let certificates = CertificateDer::pem_file_iter(path)
                .map_err(|error| format!("read the certificates in {shown}: {error}"))?;
            for certificate in certificates {
                let certificate =
                    certificate.map_err(|error| format!("the certificates in {shown}: {error}"))?;
                roots
                    .add(certificate)
                    .map_err(|error| format!("a certificate in {shown}: {error}"))?;
            }
        }
        None => {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
    }
    if roots.is_empty() {
        let place = ca_file.map_or("this system".into(), |path| path.display().to_string());
        return Err(format!("no trusted certificates in {place}"));
    }
    let provider = Arc::new(crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(Arc::new(config))
}
