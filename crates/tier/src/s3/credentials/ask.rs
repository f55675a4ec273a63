//! One question to a service that hands out keys.

use std::path::Path;
use std::time::Duration;

use crate::s3::http::{self, Proxies, Target};
use crate::s3::limits::{BUSY_PAUSE, BUSY_TRIES};

/// A service, and what it is asked.
pub(super) struct Question<'a> {
    /// `GET`, `PUT` or `POST`.
    pub(super) method: &'static str,
    /// `http[s]://host[:port]/path`.
    pub(super) uri: &'a str,
    /// Lines that end with CR and LF.
    pub(super) headers: &'a str,
    pub(super) body: &'a str,
    pub(super) reach: Reach<'a>,
    pub(super) patience: Duration,
}

/// How services on the internet are reached.
#[derive(Clone, Copy)]
pub(super) struct Reach<'a> {
    /// Certificates to trust instead of the system's.
    pub(super) ca_file: Option<&'a Path>,
    pub(super) proxies: &'a Proxies,
}

impl Question<'_> {
    /// Status and text of the answer.
    pub(super) fn ask(&self) -> Result<(u16, String), String> {
        let Self { method, headers, body, .. } = self;
        let (tls, authority, path) = split(self.uri)?;
        let (host, port) = match authority.rsplit_once(':').filter(|(_, port)| !port.ends_with(']'))
        {
            Some((host, port)) => (host, port.parse().map_err(|_| "it has no port number")?),
            None => (authority, if tls { 443 } else { 80 }),
        };
        let proxy = self.reach.proxies.to(tls, host, port).map_err(|why| why.to_string())?;
        let target = Target { tls, proxy, ..Target::plain(host, port) };
        let config = tls.then(|| http::client_config(self.reach.ca_file)).transpose()?;
        let length = match *method {
            "GET" => String::new(),
            _ => format!("content-length: {}\r\n", body.len()),
        };
        let head =
            format!("{method} {path} HTTP/1.1\r\nhost: {authority}\r\n{length}{headers}\r\n");
        let (status, answer) =
            http::ask_once(&target, config, head.as_bytes(), body.as_bytes(), self.patience)
                .map_err(|error| error.to_string())?;
        let answer = String::from_utf8(answer).map_err(|_| "it answered with no text")?;
        Ok((status, answer))
    }

    /// The same of a service that many nodes ask at once: three times, where `is_busy` or a broken connection asks for it.
    pub(super) fn insist(&self, is_busy: fn(&str) -> bool) -> Result<(u16, String), String> {
        let mut pause = BUSY_PAUSE;
        for _ in 1..BUSY_TRIES {
            match self.ask() {
                Ok((status, text)) if status < 500 && status != 429 && !is_busy(&text) => {
                    return Ok((status, text));
                }
                _ => std::thread::sleep(pause),
            }
            pause *= 2;
        }
        self.ask()
    }

    /// The text of an answer of status 200.
    pub(super) fn expect(&self) -> Result<String, String> {
        match self.ask()? {
            (200, text) => Ok(text),
            (status, _) => Err(format!("it answered with status {status}")),
        }
    }
}

/// Whether it is TLS, `host[:port]`, and `/path`.
pub(super) fn split(uri: &str) -> Result<(bool, &str, &str), String> {
    let (tls, rest) = match (uri.strip_prefix("https://"), uri.strip_prefix("http://")) {
        (Some(rest), _) => (true, rest),
        (_, Some(rest)) => (false, rest),
        _ => return Err("its address begins neither with http:// nor with https://".into()),
    };
    let slash = rest.find(['/', '?']).unwrap_or(rest.len());
    Ok((tls, &rest[..slash], if slash == rest.len() { "/" } else { &rest[slash..] }))
}
