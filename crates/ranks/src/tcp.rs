//! Ranks that a launcher without MPI started: every two are connected by TCP.
//!
//! Rank 0 listens at a known address; the others send it their addresses, and receive those of their peers. A message
//! is its length and its bytes. A length of [`ABORTED`] announces the reason why a rank gave up. A closed connection
//! means that the rank ended. It is meant for the machines of one job, as launchers are: any process that reaches the
//! port can join.

use bilevel_graph::{Communicator, Result, rank_error};
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::sync::{Mutex, PoisonError};
use std::thread::{scope, sleep};
use std::time::{Duration, Instant};

/// The length that announces a reason instead of data.
const ABORTED: u64 = u64::MAX;
/// A reason is cut to this many bytes.
const MAX_REASON: usize = 4096;
/// Up to this many bytes fit into the buffers of a connection, so a rank can send them before it receives.
const MAX_BUFFERED: usize = 1 << 14;
/// All ranks must be there within this time.
const PATIENCE: Duration = Duration::from_secs(60);
/// The greeting of a rank, by which other processes are refused.
const GREETING: [u8; 8] = *b"bilevel1";

/// A rank that is connected with every other by TCP.
pub struct Tcp {
    rank: usize,
    size: usize,
    /// By rank: the connection to it; none to itself.
    peers: Vec<Option<Peer>>,
}

/// A connection. A rank may send and receive over it at the same time.
struct Peer {
    reader: Mutex<TcpStream>,
    writer: Mutex<TcpStream>,
}

impl Tcp {
    /// Joins the other ranks, of which rank 0 listens at this address. Returns when all have joined.
    pub fn join(rank: usize, size: usize, address: &str) -> Result<Self> {
        let joined = if rank == 0 { host(size, address) } else { join(rank, size, address) };
        let failed = |error: std::io::Error| {
            rank_error(format!(
                "rank {rank} of {size} did not find the others at {address} ({error}); check that all were started and that the port is free"
            ))
        };
        let peer = |stream: TcpStream| {
            let writer = Mutex::new(stream.try_clone().map_err(failed)?);
            Ok(Peer { reader: Mutex::new(stream), writer })
        };
        let peers = joined.map_err(failed)?.into_iter().map(|stream| stream.map(peer).transpose());
        Ok(Tcp { rank, size, peers: peers.collect::<Result<_>>()? })
    }

    /// Sends to one rank and receives from another.
    fn swap(&self, (to, sent): (usize, &[u8]), (from, received): (usize, &mut [u8])) -> Result<()> {
        if sent.len() <= MAX_BUFFERED {
            self.send(to, sent)?;
            return self.receive(from, received);
        }
        scope(|scope| {
            let sending = scope.spawn(|| self.send(to, sent));
            let done = self.receive(from, received);
            let sent = sending.join().unwrap_or_else(|_| Err(rank_error("a message could not be sent")));
            done.and(sent)
        })
    }

    fn peer(&self, rank: usize) -> Result<&Peer> {
        self.peers[rank].as_ref().ok_or_else(|| rank_error("a rank has no connection to itself"))
    }

    fn send(&self, to: usize, bytes: &[u8]) -> Result<()> {
        let mut stream = self.peer(to)?.writer.lock().unwrap_or_else(PoisonError::into_inner);
        let message = (bytes.len() as u64).to_ne_bytes();
        let sent = match bytes.len() <= MAX_BUFFERED {
            true => stream.write_all(&[&message[..], bytes].concat()),
            false => stream.write_all(&message).and_then(|()| stream.write_all(bytes)),
        };
        sent.map_err(|_| self.explained(to))
    }

    /// The reason why a rank could not be reached: its last message, or its end.
    fn explained(&self, rank: usize) -> bilevel_graph::Error {
        match self.receive(rank, &mut []) {
            Err(error) => error,
            Ok(()) => ended(rank),
        }
    }

    fn receive(&self, from: usize, bytes: &mut [u8]) -> Result<()> {
        let mut stream = self.peer(from)?.reader.lock().unwrap_or_else(PoisonError::into_inner);
        let mut header = [0; 8];
        stream.read_exact(&mut header).map_err(|_| ended(from))?;
        match u64::from_ne_bytes(header) {
            ABORTED => {
                let mut reason = vec![];
                let _ = (&mut *stream).take(MAX_REASON as u64).read_to_end(&mut reason);
                Err(rank_error(String::from_utf8_lossy(&reason).into_owned()))
            }
            length if length == bytes.len() as u64 => stream.read_exact(bytes).map_err(|_| ended(from)),
            length => Err(rank_error(format!("rank {from} sent {length} bytes instead of {}", bytes.len()))),
        }
    }
}

fn ended(rank: usize) -> bilevel_graph::Error {
    rank_error(format!("rank {rank} ended before the others; its own message says why, if it could write one"))
}

impl Communicator for Tcp {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.size
    }

    fn gather(&self, own: &[u8], lengths: &[usize], all: &mut [u8]) -> Result<()> {
        let start = |rank: usize| lengths[..rank].iter().sum::<usize>();
        all[start(self.rank)..][..own.len()].copy_from_slice(own);
        for distance in 1..self.size {
            let (to, from) = ((self.rank + distance) % self.size, (self.rank + self.size - distance) % self.size);
            self.swap((to, own), (from, &mut all[start(from)..][..lengths[from]]))?;
        }
        Ok(())
    }

    fn exchange(&self, send: &[u8], lengths: &[usize], receive: &mut [u8]) -> Result<()> {
        let own = lengths[self.rank];
        let part = |rank: usize| &send[lengths[..rank].iter().sum::<usize>()..][..lengths[rank]];
        receive[self.rank * own..][..own].copy_from_slice(part(self.rank));
        for distance in 1..self.size {
            let (to, from) = ((self.rank + distance) % self.size, (self.rank + self.size - distance) % self.size);
            self.swap((to, part(to)), (from, &mut receive[from * own..][..own]))?;
        }
        Ok(())
    }

    fn abort(&self, reason: &str) {
        let reason = format!("rank {} failed: {reason}", self.rank);
        let bytes = &reason.as_bytes()[..reason.len().min(MAX_REASON)];
        for peer in self.peers.iter().flatten() {
            let mut stream = peer.writer.lock().unwrap_or_else(PoisonError::into_inner);
            let _ = stream.write_all(&[&ABORTED.to_ne_bytes()[..], bytes].concat());
            let _ = stream.shutdown(std::net::Shutdown::Write);
        }
    }
}

type Peers = Vec<Option<TcpStream>>;

/// Rank 0: waits for all, and sends each the addresses of the others.
fn host(size: usize, address: &str) -> std::io::Result<Peers> {
    let port = address.rsplit_once(':').and_then(|(_, port)| port.parse::<u16>().ok());
    let port = port.ok_or_else(|| std::io::Error::new(ErrorKind::InvalidInput, "the address has no port"))?;
    let listener = TcpListener::bind(("0.0.0.0", port))?;
    let mut peers: Peers = (0..size).map(|_| None).collect();
    let mut addresses = vec![None; size];
    for _ in 1..size {
        let (mut stream, rank) = accept(&listener, size)?;
        let mut port = [0; 2];
        stream.read_exact(&mut port)?;
        addresses[rank] = Some(SocketAddr::new(stream.peer_addr()?.ip(), u16::from_ne_bytes(port)));
        peers[rank] = Some(stream);
    }
    let list: Vec<String> = addresses.iter().flatten().map(SocketAddr::to_string).collect();
    let list = list.join(" ");
    for mut peer in peers.iter().flatten() {
        peer.write_all(&(list.len() as u64).to_ne_bytes())?;
        peer.write_all(list.as_bytes())?;
    }
    Ok(peers)
}

/// Any other rank: sends rank 0 its address, connects to the ranks before it, and waits for those after it.
fn join(rank: usize, size: usize, address: &str) -> std::io::Result<Peers> {
    let listener = TcpListener::bind(("0.0.0.0", 0))?;
    let mut first = call(address, rank, size)?;
    first.write_all(&listener.local_addr()?.port().to_ne_bytes())?;
    let mut length = [0; 8];
    first.read_exact(&mut length)?;
    let mut list = vec![0; u64::from_ne_bytes(length).min(1 << 20) as usize];
    first.read_exact(&mut list)?;
    let list = String::from_utf8_lossy(&list).into_owned();
    let mut peers: Peers = (0..size).map(|_| None).collect();
    for (number, address) in list.split(' ').enumerate().take(rank - 1) {
        peers[number + 1] = Some(call(address, rank, size)?);
    }
    for _ in rank + 1..size {
        let (stream, later) = accept(&listener, size)?;
        peers[later] = Some(stream);
    }
    peers[0] = Some(first);
    Ok(peers)
}

/// Connects to a rank, which may not listen yet, and identifies itself.
fn call(address: &str, rank: usize, size: usize) -> std::io::Result<TcpStream> {
    let began = Instant::now();
    loop {
        let known = address.to_socket_addrs().map(|mut all| all.find(|a| matches!(a.ip(), IpAddr::V4(_))));
        let tried = match known {
            Ok(Some(known)) => TcpStream::connect_timeout(&known, PATIENCE),
            Ok(None) => Err(std::io::Error::new(ErrorKind::NotFound, "no such address")),
            Err(error) => Err(error),
        };
        match tried {
            Ok(mut stream) => {
                stream.set_nodelay(true)?;
                stream.write_all(&greeting(rank, size))?;
                return Ok(stream);
            }
            Err(error) if began.elapsed() > PATIENCE => return Err(error),
            Err(_) => sleep(Duration::from_millis(20)),
        }
    }
}

fn greeting(rank: usize, size: usize) -> Vec<u8> {
    [&GREETING[..], &(rank as u64).to_ne_bytes(), &(size as u64).to_ne_bytes()].concat()
}

/// The next rank that calls. A stranger is passed over.
fn accept(listener: &TcpListener, size: usize) -> std::io::Result<(TcpStream, usize)> {
    listener.set_nonblocking(true)?;
    let began = Instant::now();
    loop {
        match listener.accept() {
            Ok((mut stream, _)) => {
                stream.set_nonblocking(false)?;
                stream.set_nodelay(true)?;
                stream.set_read_timeout(Some(PATIENCE))?;
                let mut said = vec![0; greeting(0, size).len()];
                let heard = stream.read_exact(&mut said).is_ok();
                stream.set_read_timeout(None)?;
                if let Some(rank) = (1..size).find(|&rank| heard && said == greeting(rank, size)) {
                    return Ok((stream, rank));
                }
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock && began.elapsed() < PATIENCE => {
                sleep(Duration::from_millis(2));
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Err(ErrorKind::TimedOut.into()),
            Err(error) => return Err(error),
        }
    }
}
