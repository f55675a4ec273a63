//! Stands between a bucket and us: flips bits on the way, ends connections in the middle, or lets nobody through.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::thread;

use hayase_s3_server::{ACCESS_KEY, BUCKET, SECRET_KEY};
use hayase_tier::S3;
use hayase_tier::s3::{CredentialSource, Credentials, S3Settings, UploadChecksum};

/// Answers of at least so many bytes at a time are bodies of objects.
const BODY: usize = 16 << 10;

/// A connection that is to end in the middle of a body has brought so much before.
const BROUGHT: usize = 1 << 20;

/// Passes bytes on between clients and a server; flips bits in bodies as long as `flips` are left, and ends connections
/// in bodies as long as `breaks` are.
pub(crate) struct Proxy {
    address: SocketAddr,
    pub(crate) flips: Arc<AtomicU32>,
    pub(crate) breaks: Arc<AtomicU32>,
    line: Arc<Mutex<Line>>,
}

/// Who is connected.
#[derive(Default)]
struct Line {
    is_cut: bool,
    /// Both ends of every connection since the last cut, as long as they are open.
    ends: Vec<Weak<TcpStream>>,
    /// Clients that were sent away.
    refused: u32,
}

impl Proxy {
    pub(crate) fn start(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (flips, breaks) = (Arc::<AtomicU32>::default(), Arc::<AtomicU32>::default());
        let line = Arc::<Mutex<Line>>::default();
        let (left, shared) = ((Arc::clone(&flips), Arc::clone(&breaks)), Arc::clone(&line));
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let mut line = shared.lock().unwrap();
                if line.is_cut {
                    line.refused += 1;
                    continue;
                }
                let Ok(server) = TcpStream::connect(server) else { return };
                let (server, client) = (Arc::new(server), Arc::new(client));
                line.ends.extend([Arc::downgrade(&server), Arc::downgrade(&client)]);
                drop(line);
                let (to, from, (flips, breaks)) =
                    (Arc::clone(&server), Arc::clone(&client), left.clone());
                let none = AtomicU32::new(0);
                thread::spawn(move || pass(&from, &to, &none, &none));
                thread::spawn(move || pass(&server, &client, &flips, &breaks));
            }
        });
        Self { address, flips, breaks, line }
    }

    pub(crate) fn flip(&self, count: u32) {
        self.flips.store(count, Ordering::SeqCst);
    }

    /// Ends all connections; whoever comes from now on is sent away.
    pub(crate) fn cut(&self) {
        let mut line = self.line.lock().unwrap();
        line.is_cut = true;
        for end in line.ends.drain(..).filter_map(|end| end.upgrade()) {
            // One that the other side has ended can not be ended again.
            let _ = end.shutdown(Shutdown::Both);
        }
    }

    /// Lets clients through again; how many were sent away meanwhile.
    pub(crate) fn mend(&self) -> u32 {
        let mut line = self.line.lock().unwrap();
        line.is_cut = false;
        std::mem::take(&mut line.refused)
    }

    /// A bucket behind it, asked up to `attempts` times.
    pub(crate) fn bucket(&self, attempts: u32) -> S3 {
        S3::attach(S3Settings { attempts, ..self.settings() }).unwrap()
    }

    /// The same, where what is sent carries no checksums: as on a server that knows none.
    pub(crate) fn bucket_without_sums(&self, attempts: u32) -> S3 {
        let checksum = UploadChecksum::Off;
        S3::attach(S3Settings { attempts, checksum, ..self.settings() }).unwrap()
    }

    /// The same, asked as often as is usual.
    pub(crate) fn patient_bucket(&self) -> S3 {
        S3::attach(self.settings()).unwrap()
    }

    fn settings(&self) -> S3Settings {
        S3Settings {
            endpoint: Some(format!("http://{}", self.address)),
            credentials: CredentialSource::Keys(Credentials::permanent(ACCESS_KEY, SECRET_KEY)),
            ..S3Settings::new(BUCKET)
        }
    }
}

fn pass(mut from: &TcpStream, mut to: &TcpStream, flips: &AtomicU32, breaks: &AtomicU32) {
    let mut bytes = vec![0; 64 << 10];
    let mut brought = 0;
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        let one_less = |left: u32| left.checked_sub(1);
        let takes =
            |left: &AtomicU32| left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_less);
        let is_body = count >= BODY;
        if is_body && takes(flips).is_ok() {
            bytes[count - 1] ^= 1;
        }
        brought += count;
        if is_body && brought > BROUGHT && takes(breaks).is_ok() {
            let _ = from.shutdown(Shutdown::Both);
            break;
        }
        if to.write_all(&bytes[..count]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
}
