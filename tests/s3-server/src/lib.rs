//! An S3 server in this process: the protocol by `s3s`, the objects in memory.
//!
//! [`Server::start`] listens on loopback; dropping it ends it and forgets its objects. What the protocol
//! means (signatures, XML, headers) is `s3s`'s reading of it, not ours, so that our client and this
//! server can not agree on a mistake. Rooms: [`store`] (buckets, versions, uploads; pure), [`service`]
//! (requests to calls of the store).
//! Not `s3s-fs`, since that lists objects without entity tags, decides `If-None-Match` in two steps, does not
//! list uploads, and says that names in listings are percent-encoded while they are not.

mod service;
mod store;

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::{self, JoinHandle};

use anyhow::Context;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use s3s::auth::SimpleAuth;
use s3s::host::SingleDomain;
use s3s::service::{S3Service, S3ServiceBuilder};
use tokio::sync::oneshot;

use self::service::Service;
use self::store::Store;

/// What is open to a caller.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where to listen; port 0 chooses one.
    pub listen: SocketAddr,
    /// Access key and secret; `None` lets everybody in.
    pub keys: Option<(String, String)>,
    /// Buckets that are there from the start.
    pub buckets: Vec<String>,
    /// Also take buckets in front of this name (`bucket.domain`).
    pub domain: Option<String>,
    /// Threads that serve, 1 at least: with one, requests are served in an order that tests can rely on;
    /// with as many as processors, the checksums of bodies do not make it the limit of what is measured.
    pub threads: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            keys: Some((ACCESS_KEY.into(), SECRET_KEY.into())),
            buckets: vec![BUCKET.into()],
            domain: None,
            threads: 1,
        }
    }
}

/// The keys of [`Options::default`].
pub const ACCESS_KEY: &str = "test";
/// Its secret.
pub const SECRET_KEY: &str = "testtest";
/// The bucket of [`Options::default`].
pub const BUCKET: &str = "bucket";

/// A server that runs as long as this value.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    store: Arc<Store>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Listens, and serves on threads of its own.
    ///
    /// # Errors
    /// When the address can not be had.
    pub fn start(options: &Options) -> anyhow::Result<Self> {
        let listener = TcpListener::bind(options.listen)
            .with_context(|| format!("listen on {}", options.listen))?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let store = Arc::new(Store::new(&options.buckets));
        let service = service(&store, options, address.port())?;
        let runtime = match options.threads {
            0 | 1 => tokio::runtime::Builder::new_current_thread().enable_all().build()?,
            // One of them accepts.
            threads => tokio::runtime::Builder::new_multi_thread()
                .worker_threads(threads)
                .enable_all()
                .build()?,
        };
        let (stop, stopped) = oneshot::channel();
        let thread = thread::Builder::new().name("s3-server".into()).spawn(move || {
            runtime.block_on(async move {
                tokio::select! {
                    () = serve(listener, service) => {}
                    _ = stopped => {}
                }
            });
        })?;
        Ok(Self { address, store, stop: Some(stop), thread: Some(thread) })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// As clients are told.
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Makes a bucket, or empties one.
    pub fn make_bucket(&self, name: &str) {
        self.store.make_bucket(name);
    }

    /// Bytes of objects that were read since the start, repeated ones included.
    pub fn bytes_read(&self) -> u64 {
        self.store.bytes_read.load(Ordering::Relaxed)
    }

    /// Requests so far that make, change or remove an object or an upload.
    pub fn changes(&self) -> u64 {
        self.store.changes.load(Ordering::Relaxed)
    }

    /// Uploads in parts that were begun and neither joined nor given up.
    pub fn unfinished_uploads(&self) -> usize {
        self.store.unfinished_uploads()
    }

    /// Parts of such uploads.
    pub fn unfinished_parts(&self) -> usize {
        self.store.unfinished_parts()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn service(store: &Arc<Store>, options: &Options, port: u16) -> anyhow::Result<S3Service> {
    let mut builder = S3ServiceBuilder::new(Service(Arc::clone(store)));
    if let Some((access, secret)) = &options.keys {
        builder.set_auth(SimpleAuth::from_single(access.clone(), secret.clone()));
    }
    if let Some(domain) = &options.domain {
        builder.set_host(SingleDomain::new(&format!("{domain}:{port}"))?);
    }
    Ok(builder.build())
}

async fn serve(listener: TcpListener, service: S3Service) {
    let Ok(listener) = tokio::net::TcpListener::from_std(listener) else { return };
    let http = Builder::new(TokioExecutor::new());
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        // Without it each small answer waits 40 ms for the client's acknowledgement.
        let _ = stream.set_nodelay(true);
        let connection = http.serve_connection(TokioIo::new(stream), service.clone()).into_owned();
        tokio::spawn(connection);
    }
}
