//! `bilevel serve`: runs in a browser, read-only and on this machine alone.
//!
//! Connections wait in a bounded queue for a fixed number of workers. A request has a few seconds and a few kilobytes; each connection is
//! closed after its response. So neither many clients, nor slow ones, nor long requests take more memory or threads than that.

mod catalogue;
mod comparison;
mod curves;
mod http;
mod routes;

use crate::errors::{CliError, Result};
use bilevel_run::Registry;
use http::{Refusal, Response, read_request};
use routes::Site;
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, TcpStream};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::mpsc::{Receiver, TrySendError, sync_channel};
use std::sync::{Mutex, PoisonError};

/// Requests that are answered at a time.
const WORKERS: usize = 8;
/// Connections that wait for a worker; more are told to come back.
const WAITING: usize = 256;

/// A server that listens.
pub struct Server {
    listener: TcpListener,
    port: u16,
}

impl Server {
    /// Listens on this port of 127.0.0.1; 0 is any free port.
    pub fn listen(port: u16) -> Result<Self> {
        let address = SocketAddrV4::new(Ipv4Addr::LOCALHOST, port);
        let cannot = |error: std::io::Error| {
            let other = "choose another one with --port, or any with --port 0";
            CliError::Usage(format!("cannot listen on port {port} of 127.0.0.1: {error}; {other}"))
        };
        let listener = TcpListener::bind(address).map_err(cannot)?;
        let port = listener.local_addr().map_err(cannot)?.port();
        Ok(Server { listener, port })
    }

    /// The address of the page.
    pub fn address(&self) -> String {
        format!("http://127.0.0.1:{}/", self.port)
    }

    /// Answers until the process ends.
    pub fn serve(&self, registry: &Registry, root: &Path) {
        let site = Site::new(registry, root);
        let (hand_in, waiting) = sync_channel::<TcpStream>(WAITING);
        let waiting = Mutex::new(waiting);
        std::thread::scope(|scope| {
            for _ in 0..WORKERS {
                scope.spawn(|| work(&waiting, &site, self.port));
            }
            for stream in self.listener.incoming() {
                // A connection that was given up before it was taken is nobody's loss.
                let Ok(stream) = stream else { continue };
                if let Err(TrySendError::Full(stream)) = hand_in.try_send(stream) {
                    // Without reading the request: a client that is slow would hold up all others here.
                    http::busy(stream);
                }
            }
        });
    }
}

/// Answers one connection after the other.
fn work(waiting: &Mutex<Receiver<TcpStream>>, site: &Site, port: u16) {
    loop {
        let next = waiting.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(mut stream) = next else { return };
        let response = match read_request(&mut stream, port) {
            Ok(request) => {
                // A mistake in one answer must not take a worker from all others.
                let answer = catch_unwind(AssertUnwindSafe(|| site.answer(&request)));
                let response =
                    answer.unwrap_or_else(|_| Response::refusal(500, "this cannot be shown; please report it"));
                if request.is_head { response.without_body() } else { response }
            }
            Err(Refusal::Silent) => continue,
            Err(Refusal::Because(code, sentence)) => Response::refusal(code, sentence),
        };
        http::write(&mut stream, &response);
    }
}
