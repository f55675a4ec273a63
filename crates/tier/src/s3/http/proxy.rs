//! The way out of a network whose nodes reach servers only through a proxy.
//!
//! Connections with TLS only: the proxy is asked for a tunnel and sees nothing of what goes through it.
//! Source: RFC 9110, section 9.3.6 (CONNECT); the variables are those of curl(1).

use std::io::{self, Read, Write};
use std::net::{IpAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use data_encoding::BASE64;

use super::connection::connect_to;
use crate::s3::limits::HEAD_BYTES_MAX;
use crate::s3::percent;

/// A proxy, and for which hosts it is not used.
#[derive(Clone, Debug, Default)]
pub struct Proxies {
    tls: Option<Result<Arc<Proxy>, BadProxy>>,
    except: Vec<String>,
}

/// A variable that names no proxy that we can speak to; its value without a password.
#[derive(Clone, Debug, thiserror::Error)]
#[error(
    "invalid proxy {name}=`{value}`: expected http://HOST:PORT or http://USER:PASSWORD@HOST:PORT"
)]
pub(in crate::s3) struct BadProxy {
    name: &'static str,
    value: String,
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
    /// `https_proxy` or `HTTPS_PROXY`, else `all_proxy` or `ALL_PROXY`; `no_proxy` or `NO_PROXY`.
    pub(in crate::s3) fn read(said: &dyn Fn(&str) -> Option<String>) -> Self {
        let first =
            |names: [&'static str; 2]| names.into_iter().find_map(|name| Some((name, said(name)?)));
        let named = first(["https_proxy", "HTTPS_PROXY"]);
        let tls = named.or_else(|| first(["all_proxy", "ALL_PROXY"])).map(|(name, url)| {
            let proxy = Proxy::parse(&url).map(Arc::new);
            proxy.ok_or_else(|| BadProxy { name, value: without_password(&url) })
        });
        let except = first(["no_proxy", "NO_PROXY"]).map(|(_, list)| list).unwrap_or_default();
        let except = except.split([',', ' ']).map(str::trim).filter(|name| !name.is_empty());
        Self { tls, except: except.map(str::to_ascii_lowercase).collect() }
    }

    /// The one for this host, if any.
    pub(in crate::s3) fn to(
        &self,
        tls: bool,
        host: &str,
        port: u16,
    ) -> Result<Option<Arc<Proxy>>, BadProxy> {
        let Some(proxy) = self.tls.as_ref().filter(|_| tls) else { return Ok(None) };
        let host = bare(host).to_ascii_lowercase();
        match self.except.iter().any(|entry| is_meant(entry, &host, port)) {
            true => Ok(None),
            false => proxy.clone().map(Some),
        }
    }
}

/// An address of IPv6 without its brackets.
fn bare(host: &str) -> &str {
    host.trim_start_matches('[').trim_end_matches(']')
}

/// `*`, a host, a domain (with or without a dot in front), each perhaps with a port; a network `ADDRESS/BITS`.
fn is_meant(entry: &str, host: &str, port: u16) -> bool {
    let (entry, same_port) = match entry.rsplit_once(':') {
        Some((name, number)) if !name.contains(':') || name.ends_with(']') => {
            (name, number.parse() == Ok(port))
        }
        _ => (entry, true),
    };
    let entry = bare(entry);
    if let Some((network, bits)) = entry.split_once('/') {
        return is_in(host, network, bits).unwrap_or(false);
    }
    let domain = entry.strip_prefix("*.").or_else(|| entry.strip_prefix('.')).unwrap_or(entry);
    let below = || host.strip_suffix(domain).is_some_and(|rest| rest.ends_with('.'));
    same_port && (entry == "*" || host == domain || below())
}

/// `None` where one of them is no address.
fn is_in(host: &str, network: &str, bits: &str) -> Option<bool> {
    let bits: u32 = bits.parse().ok()?;
    let (host, network, width) = match (host.parse().ok()?, network.parse().ok()?) {
        (IpAddr::V4(host), IpAddr::V4(network)) => {
            (u128::from(host.to_bits()), u128::from(network.to_bits()), 32)
        }
        (IpAddr::V6(host), IpAddr::V6(network)) => (host.to_bits(), network.to_bits(), 128),
        _ => return None,
    };
    let dropped = u32::checked_sub(width, bits)?;
    // All bits of the widest would be one too many to drop.
    Some(dropped == 128 || host >> dropped == network >> dropped)
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
        // The decoder takes `+` for a space, as listings do; here it is itself.
        let decoded = |user: &str| percent::decode(&user.replace('+', "%2B"));
        let authorization = user.map(|user| BASE64.encode(&decoded(user)));
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
            Some(407) => Err(refused(format!(
                "the proxy {place} wants a user and a password (http://USER:PASSWORD@{place})"
            ))),
            Some(status @ 400..=499) => Err(refused(format!(
                "the proxy {place} makes no tunnel to {host}:{port}: status {status}"
            ))),
            Some(status) => Err(io::Error::other(format!(
                "the proxy {place} made no tunnel to {host}:{port}: status {status}"
            ))),
            None => Err(io::Error::other(format!("the proxy {place} does not answer in HTTP"))),
        }
    }
}

/// Not to be tried again: a directory behind the proxy may count wrong passwords.
fn refused(why: String) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, why)
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

    fn proxies(variables: &[(&str, &str)]) -> Proxies {
        Proxies::read(&|name| {
            variables.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn variables_name_a_proxy_and_who_does_without() {
        let found = proxies(&[
            ("HTTPS_PROXY", "http://me:p%40s+s@proxy:3128/"),
            (
                "no_proxy",
                "near, .corp.example,10.0.0.1,other:8443,10.1.0.0/16,::1,fd00::/8,1.2.3.4/33",
            ),
        ]);
        let to = |found: &Proxies, tls, host, port| found.to(tls, host, port).unwrap();
        let proxy = to(&found, true, "s3.amazonaws.com", 443).unwrap();
        assert_eq!((proxy.host.as_str(), proxy.port), ("proxy", 3128));
        assert_eq!(proxy.authorization.as_deref(), Some(BASE64.encode(b"me:p@s+s").as_str()));
        assert!(!format!("{found:?}").contains("bWU6"), "secrets are not shown");
        assert!(to(&found, false, "s3.amazonaws.com", 80).is_none(), "without TLS there is none");
        for host in [
            "near",
            "a.near",
            "NEAR",
            "x.corp.example",
            "corp.example",
            "10.0.0.1",
            "10.1.2.3",
            "[::1]",
            "[fd12::1]",
        ] {
            assert!(to(&found, true, host, 443).is_none(), "{host}");
        }
        assert!(
            to(&found, true, "other", 8443).is_none() && to(&found, true, "other", 443).is_some()
        );
        for host in ["nearby", "notcorp.example", "110.0.0.1", "10.2.0.1", "1.2.3.4", "[fe80::1]"] {
            assert!(to(&found, true, host, 443).is_some(), "{host}");
        }
        let all = proxies(&[("ALL_PROXY", "proxy"), ("NO_PROXY", "*")]);
        assert!(to(&all, true, "h", 443).is_none());
        assert!(to(&proxies(&[]), true, "h", 443).is_none());
    }

    #[test]
    fn what_names_no_proxy_is_refused_without_its_password() {
        for url in ["socks5://me:secret@h:1", "http://me:secret@h:port", "http://me:secret@:1"] {
            let found = proxies(&[("https_proxy", url), ("no_proxy", "near")]);
            let shown = found.to(true, "h", 443).unwrap_err().to_string();
            assert!(shown.contains("https_proxy") && !shown.contains("secret"), "{shown}");
            assert!(
                found.to(true, "near", 443).unwrap().is_none(),
                "who needs none is not refused"
            );
            assert!(found.to(false, "h", 80).unwrap().is_none());
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
