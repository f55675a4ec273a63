//! The way out of a network whose nodes reach servers only through a proxy.
//!
//! Connections with TLS only: the proxy is asked for a tunnel and sees nothing of what goes through it.
//! Source: RFC 9110, section 9.3.6 (CONNECT); the variables are those of curl(1).

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use data_encoding::BASE64;

use super::connection::connect_to;
use crate::s3::limits::HEAD_BYTES_MAX;
use crate::s3::percent;

/// A proxy, and for which hosts it is not used.
#[derive(Clone, Debug, Default)]
pub struct Proxies {
    tls: Option<Arc<Proxy>>,
    except: Vec<String>,
}

/// Where a proxy is, and who we are to it.
#[derive(PartialEq, Eq)]
pub(in crate::s3) struct Proxy {
    host: String,
    port: u16,
    /// `user:password` in Base64.
    authorization: Option<String>,
}

impl std::fmt::Debug for Proxy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Proxy({}:{}, ..)", self.host, self.port)
    }
}

impl Proxies {
    /// `HTTPS_PROXY` or `https_proxy`, else `ALL_PROXY` or `all_proxy`; `NO_PROXY` or `no_proxy`.
    ///
    /// # Errors
    /// The variable and its value, where it names no proxy that we can speak to.
    pub(in crate::s3) fn read(
        said: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Self, (&'static str, String)> {
        let first =
            |names: [&'static str; 2]| names.into_iter().find_map(|name| Some((name, said(name)?)));
        let named =
            first(["https_proxy", "HTTPS_PROXY"]).or_else(|| first(["all_proxy", "ALL_PROXY"]));
        let tls = match named {
            Some((name, url)) => match Proxy::parse(&url) {
                Some(proxy) => Some(Arc::new(proxy)),
                None => return Err((name, without_password(&url))),
            },
            None => None,
        };
        let except = first(["no_proxy", "NO_PROXY"]).map(|(_, list)| list).unwrap_or_default();
        let except = except.split([',', ' ']).map(str::trim).filter(|name| !name.is_empty());
        Ok(Self { tls, except: except.map(str::to_ascii_lowercase).collect() })
    }

    /// The one for this host, if any.
    pub(in crate::s3) fn to(&self, tls: bool, host: &str, port: u16) -> Option<Arc<Proxy>> {
        let proxy = self.tls.as_ref().filter(|_| tls)?;
        let host = host.to_ascii_lowercase();
        let excepted = self.except.iter().any(|entry| is_meant(entry, &host, port));
        (!excepted).then(|| Arc::clone(proxy))
    }
}

/// `*`, a host, a domain (with or without a dot in front), each perhaps with a port.
fn is_meant(entry: &str, host: &str, port: u16) -> bool {
    let (entry, same_port) = match entry.rsplit_once(':') {
        Some((name, number)) if !name.contains(':') || name.ends_with(']') => {
            (name, number.parse() == Ok(port))
        }
        _ => (entry, true),
    };
    let domain = entry.strip_prefix("*.").or_else(|| entry.strip_prefix('.')).unwrap_or(entry);
    let below = || host.strip_suffix(domain).is_some_and(|rest| rest.ends_with('.'));
    same_port && (entry == "*" || host == domain || below())
}

/// As it can be shown.
fn without_password(url: &str) -> String {
    match url.rsplit_once('@') {
        Some((_, place)) => format!("..@{place}"),
        None => url.to_owned(),
    }
}

impl Proxy {
    /// `[http://][user[:password]@]host[:port][/]`; the port is 1080 where none stands, as for curl(1).
    fn parse(url: &str) -> Option<Self> {
        let rest = match url.split_once("://") {
            Some(("http", rest)) => rest,
            Some(_) => return None,
            None => url,
        };
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        let (user, place) = match rest.rsplit_once('@') {
            Some((user, place)) => (Some(user), place),
            None => (None, rest),
        };
        let (host, port) = match place.rsplit_once(':').filter(|(_, port)| !port.ends_with(']')) {
            Some((host, port)) => (host, port.parse().ok()?),
            None => (place, 1080),
        };
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-._[]:".contains(&byte);
        if host.is_empty() || !host.bytes().all(is_name) {
            return None;
        }
        let authorization = user.map(|user| BASE64.encode(&percent::decode(user)));
        Some(Self { host: host.to_owned(), port, authorization })
    }

    /// A stream that ends at `host:port`.
    pub(super) fn tunnel(
        &self,
        host: &str,
        port: u16,
        patience: Duration,
    ) -> io::Result<TcpStream> {
        let place = format!("{}:{}", self.host, self.port);
        let explained =
            |error: io::Error| io::Error::new(error.kind(), format!("the proxy {place}: {error}"));
        let mut stream = connect_to(&self.host, self.port, patience).map_err(explained)?;
        stream.set_read_timeout(Some(patience))?;
        stream.set_write_timeout(Some(patience))?;
        let who = self.authorization.as_ref();
        let who =
            who.map(|text| format!("proxy-authorization: Basic {text}\r\n")).unwrap_or_default();
        let head = format!("CONNECT {host}:{port} HTTP/1.1\r\nhost: {host}:{port}\r\n{who}\r\n");
        stream.write_all(head.as_bytes()).map_err(explained)?;
        let answer = answer(&mut stream).map_err(explained)?;
        match status(&answer) {
            Some(200..=299) => Ok(stream),
            Some(407) => Err(io::Error::other(format!(
                "the proxy {place} wants a user and a password (http://USER:PASSWORD@{place})"
            ))),
            Some(status) => Err(io::Error::other(format!(
                "the proxy {place} makes no tunnel to {host}:{port}: status {status}"
            ))),
            None => Err(io::Error::other(format!("the proxy {place} does not answer in HTTP"))),
        }
    }
}

/// A head, byte by byte: what follows belongs to somebody else.
fn answer(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        if stream.read(&mut byte)? == 0 {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it hung up"));
        }
        head.push(byte[0]);
        if head.len() > HEAD_BYTES_MAX {
            return Err(io::Error::other("its answer is too long"));
        }
    }
    Ok(head)
}

/// `HTTP/1.1 200 ...`
fn status(head: &[u8]) -> Option<u16> {
    let line = std::str::from_utf8(head.split(|byte| *byte == b'\r').next()?).ok()?;
    let (version, rest) = line.split_once(' ')?;
    version.starts_with("HTTP/1.").then(|| rest.get(..3)?.parse().ok())?
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    fn proxies(variables: &[(&str, &str)]) -> Result<Proxies, (&'static str, String)> {
        Proxies::read(&|name| {
            variables.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn variables_name_a_proxy_and_who_does_without() {
        let found = proxies(&[
            ("HTTPS_PROXY", "http://me:p%40ss@proxy:3128/"),
            ("no_proxy", "near, .corp.example,10.0.0.1,other:8443"),
        ])
        .unwrap();
        let proxy = found.to(true, "s3.amazonaws.com", 443).unwrap();
        assert_eq!((proxy.host.as_str(), proxy.port), ("proxy", 3128));
        assert_eq!(proxy.authorization.as_deref(), Some(BASE64.encode(b"me:p@ss").as_str()));
        assert!(!format!("{found:?}").contains("bWU6"), "secrets are not shown");
        assert!(found.to(false, "s3.amazonaws.com", 80).is_none(), "without TLS there is none");
        for host in ["near", "a.near", "NEAR", "x.corp.example", "corp.example", "10.0.0.1"] {
            assert!(found.to(true, host, 443).is_none(), "{host}");
        }
        assert!(found.to(true, "other", 8443).is_none() && found.to(true, "other", 443).is_some());
        for host in ["nearby", "notcorp.example", "110.0.0.1"] {
            assert!(found.to(true, host, 443).is_some(), "{host}");
        }
        let all = proxies(&[("ALL_PROXY", "proxy"), ("NO_PROXY", "*")]).unwrap();
        assert!(all.to(true, "h", 443).is_none());
        assert!(proxies(&[]).unwrap().to(true, "h", 443).is_none());
    }

    #[test]
    fn what_names_no_proxy_is_refused_without_its_password() {
        for url in ["socks5://me:secret@h:1", "http://me:secret@h:port", "http://me:secret@:1"] {
            let (name, shown) = proxies(&[("https_proxy", url)]).unwrap_err();
            assert!(name == "https_proxy" && !shown.contains("secret"), "{shown}");
        }
    }

    /// What a proxy that says `answer` is asked, and what comes of it.
    fn tunnel(answer: &'static str) -> (String, io::Result<String>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let asked = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = [0; 1000];
            let count = stream.read(&mut request).unwrap();
            stream.write_all(answer.as_bytes()).unwrap();
            String::from_utf8_lossy(&request[..count]).into_owned()
        });
        let proxy = Proxy::parse(&format!("u:p@127.0.0.1:{port}")).unwrap();
        let found = proxy.tunnel("host", 443, Duration::from_secs(5)).map(|mut stream| {
            let mut text = String::new();
            stream.read_to_string(&mut text).unwrap();
            text
        });
        (asked.join().unwrap(), found)
    }

    #[test]
    fn a_tunnel_begins_behind_the_answer() {
        let (asked, found) = tunnel("HTTP/1.1 200 Connection established\r\nx: y\r\n\r\nbytes");
        assert!(asked.starts_with("CONNECT host:443 HTTP/1.1\r\n"), "{asked}");
        assert!(asked.contains("proxy-authorization: Basic dTpw\r\n"), "{asked}");
        assert_eq!(found.unwrap(), "bytes");
        for (answer, expected) in [
            ("HTTP/1.1 407 Who\r\n\r\n", "wants a user and a password"),
            ("HTTP/1.1 403 No\r\n\r\n", "status 403"),
            ("SSH-2.0\r\n\r\n", "does not answer in HTTP"),
            ("HTTP/1.1 200", "hung up"),
        ] {
            let why = tunnel(answer).1.unwrap_err().to_string();
            assert!(why.contains(expected) && why.contains("the proxy 127.0.0.1:"), "{why}");
        }
    }
}
