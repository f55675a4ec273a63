//! Servers with TLS: whose certificates are believed, and the way through a proxy.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use hayase_tier::s3::S3Settings;
use hayase_tier::{S3, Tier};

use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;

use crate::s3_faults::{BYTES, is_knock, read, settings, truth};
use crate::scripted::{Scripted, empty_page};

/// A server with a certificate for `localhost`, and the file that has it.
fn tls_server(directory: &Path) -> (Scripted, PathBuf) {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .unwrap();
    let server = Scripted::with_tls(Some(Arc::new(tls)), |_, request| {
        if is_knock(request) { empty_page() } else { truth(request) }
    });
    let ca_file = directory.join("ca.pem");
    std::fs::write(&ca_file, made.cert.pem()).unwrap();
    (server, ca_file)
}

#[test]
fn a_server_with_its_own_authority_is_believed_when_told() {
    let directory = tempfile::tempdir().unwrap();
    let (server, ca_file) = tls_server(directory.path());
    let with = |host: &str, ca_file: Option<PathBuf>| {
        S3::attach(S3Settings {
            endpoint: Some(format!("https://{host}:{}", server.address.port())),
            connect_to: Some(server.address),
            ca_file,
            ..settings(&server)
        })
    };
    let tier = with("localhost", Some(ca_file.clone())).unwrap();
    assert_eq!(read(&tier).unwrap(), BYTES);
    assert_eq!(tier.traffic().repeats, 0);
    let strange = with("localhost", None).unwrap_err();
    assert!(strange.help().unwrap().contains("AWS_CA_BUNDLE"), "{strange}");
    let other = with("elsewhere", Some(ca_file)).unwrap_err();
    assert!(other.to_string().contains("no TLS with https://elsewhere"), "{other}");
    let missing = with("localhost", Some("/nonexistent.pem".into())).unwrap_err();
    assert!(missing.to_string().contains("/nonexistent.pem"), "{missing}");
}

/// Hands on to `server` all that asks for a tunnel to `localhost`; notes the first lines of what it is asked.
fn proxy(server: SocketAddr, answer: &'static str) -> (SocketAddr, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let asked = Arc::new(Mutex::new(Vec::new()));
    let notes = Arc::clone(&asked);
    std::thread::spawn(move || {
        for near in listener.incoming() {
            let mut near = near.unwrap();
            let mut request = [0; 1000];
            let count = near.read(&mut request).unwrap();
            let request = String::from_utf8_lossy(&request[..count]).into_owned();
            notes.lock().unwrap().push(request.lines().next().unwrap_or_default().to_owned());
            near.write_all(answer.as_bytes()).unwrap();
            let far = TcpStream::connect(server).unwrap();
            let ends = [(near.try_clone().unwrap(), far.try_clone().unwrap()), (far, near)];
            for (mut from, mut to) in ends {
                std::thread::spawn(move || std::io::copy(&mut from, &mut to));
            }
        }
    });
    (address, asked)
}

#[test]
fn servers_with_tls_are_reached_through_a_proxy_and_those_that_are_excepted_are_not() {
    let directory = tempfile::tempdir().unwrap();
    let (server, ca_file) = tls_server(directory.path());
    let (address, asked) = proxy(server.address, "HTTP/1.1 200 OK\r\n\r\n");
    let (strict, _) = proxy(server.address, "HTTP/1.1 407 Who\r\n\r\n");
    let with = |proxy: SocketAddr, except: &str| {
        let port = server.address.port();
        let variable = |name: &str| match name {
            "AWS_ENDPOINT_URL" => Some(format!("https://localhost:{port}")),
            "AWS_CA_BUNDLE" => Some(ca_file.to_str().unwrap().to_owned()),
            "HTTPS_PROXY" => Some(format!("http://{proxy}")),
            "NO_PROXY" => Some(except.to_owned()),
            _ => None,
        };
        let found = S3Settings::from_url("s3://bucket", &variable).unwrap();
        S3::attach(S3Settings {
            endpoint: found.endpoint,
            ca_file: found.ca_file,
            proxies: found.proxies,
            ..settings(&server)
        })
    };
    assert_eq!(read(&with(address, "").unwrap()).unwrap(), BYTES);
    let lines = asked.lock().unwrap().clone();
    assert!(!lines.is_empty());
    let expected = format!("CONNECT localhost:{} HTTP/1.1", server.address.port());
    assert!(lines.iter().all(|line| *line == expected), "{lines:?}");
    assert_eq!(read(&with(address, "localhost").unwrap()).unwrap(), BYTES);
    assert_eq!(asked.lock().unwrap().len(), lines.len(), "not for those that are excepted");
    let refused = with(strict, "").unwrap_err().to_string();
    assert!(refused.contains("wants a user and a password"), "{refused}");
}
