//! A service that answers as a test tells it.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::thread;

/// What the request must contain, in parts between `|`; status line; body.
pub(super) type Answer = (&'static str, &'static str, &'static str);

/// Answers requests in turn; its address.
pub(super) fn fake(script: Vec<Answer>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    thread::spawn(move || {
        for (expected, status, body) in script {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = [0; 4096];
            let count = stream.read(&mut request).unwrap();
            let request = String::from_utf8_lossy(&request[..count]).into_owned();
            let fine = expected.split('|').all(|part| request.contains(part));
            let status = if fine { status } else { "400 Bad Request" };
            let head = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n", body.len());
            stream.write_all(format!("{head}{body}").as_bytes()).unwrap();
        }
    });
    address
}
