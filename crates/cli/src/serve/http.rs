//! One request and one response of HTTP/1.1, within limits of size and time; `httparse` reads the grammar.
//!
//! A page of another site can make a browser send requests here. It can read the answers only if its name leads to 127.0.0.1 (DNS
//! rebinding), which the header `Host` gives away, so any other host is refused.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The longest request, in bytes: its line and its headers.
const LONGEST_REQUEST: usize = 16 << 10;
/// The longest path with its query, in bytes.
const LONGEST_TARGET: usize = 4 << 10;
/// The most headers; a browser sends some twenty.
const MOST_HEADERS: usize = 64;
/// How long a request may take to arrive, and its response to leave.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long the rest of a request is read and thrown away after its response.
const LINGER: Duration = Duration::from_secs(1);

/// The request of a client.
#[derive(Debug, PartialEq)]
pub struct Request {
    /// The path, without its query.
    pub path: String,
    /// The query: names and values, decoded.
    pub query: Vec<(String, String)>,
    /// The version that the client has.
    pub known: Option<String>,
    /// Whether only the head of the response is wanted.
    pub is_head: bool,
}

/// The reason why a request has no response.
#[derive(Debug, PartialEq)]
pub enum Refusal {
    /// No client waits for a response.
    Silent,
    /// A status and a sentence.
    Because(u16, &'static str),
}

/// The response to a client.
#[derive(Clone, Debug)]
pub struct Response {
    code: u16,
    kind: &'static str,
    /// The content security policy of the response.
    policy: &'static str,
    version: Option<String>,
    length: usize,
    body: Arc<Vec<u8>>,
}

/// For pages: only content of this server, and only scripts in files.
const OWN: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; \
                   base-uri 'none'; form-action 'none'; frame-ancestors 'self'";
/// For the report of a run, which holds its style and script, and may reach nothing, not even this server.
pub const ALONE: &str = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; \
                         form-action 'none'; sandbox allow-scripts allow-downloads allow-popups";

impl Response {
    /// A body of this type.
    pub fn ok(kind: &'static str, body: Arc<Vec<u8>>) -> Self {
        Response { code: 200, kind, policy: OWN, version: None, length: body.len(), body }
    }

    /// The same under another policy.
    pub fn under(self, policy: &'static str) -> Self {
        Response { policy, ..self }
    }

    /// Adds the version of the content; a client that already has it gets status 304 instead.
    pub fn versioned(self, version: String, request: &Request) -> Self {
        if request.known.as_deref() == Some(&version) {
            return Response { code: 304, version: Some(version), length: 0, body: Arc::default(), ..self };
        }
        Response { version: Some(version), ..self }
    }

    /// A sentence with a status.
    pub fn refusal(code: u16, sentence: &str) -> Self {
        Response { code, ..Response::ok("text/plain; charset=utf-8", Arc::new(format!("{sentence}\n").into_bytes())) }
    }

    /// The same without its body, whose length is said all the same.
    pub fn without_body(self) -> Self {
        Response { body: Arc::default(), ..self }
    }

    fn head(&self) -> String {
        let words = match self.code {
            200 => "OK",
            304 => "Not Modified",
            400 => "Bad Request",
            403 => "Forbidden",
            404 => "Not Found",
            405 => "Method Not Allowed",
            413 => "Content Too Large",
            414 => "URI Too Long",
            431 => "Request Header Fields Too Large",
            500 => "Internal Server Error",
            503 => "Service Unavailable",
            _ => "Error",
        };
        let mut head = format!(
            "HTTP/1.1 {} {words}\r\nContent-Type: {}\r\nContent-Length: {}\r\n",
            self.code, self.kind, self.length
        );
        head += &format!("Content-Security-Policy: {}\r\n", self.policy);
        head += "Cache-Control: no-cache\r\nX-Content-Type-Options: nosniff\r\nCross-Origin-Resource-Policy: same-origin\r\n";
        head += "Referrer-Policy: no-referrer\r\nConnection: close\r\n";
        if let Some(version) = &self.version {
            head += &format!("ETag: \"{version}\"\r\n");
        }
        if self.code == 405 {
            head += "Allow: GET, HEAD\r\n";
        }
        head + "\r\n"
    }
}

/// Reads a request to this port.
pub fn read_request(stream: &mut TcpStream, port: u16) -> Result<Request, Refusal> {
    let (until, mut bytes) = (Instant::now() + PATIENCE, Vec::with_capacity(1024));
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() || stream.set_read_timeout(Some(left)).is_err() {
            return Err(Refusal::Silent);
        }
        let mut part = [0; 2048];
        match stream.read(&mut part) {
            Ok(0) => return Err(Refusal::Silent),
            Ok(read) => bytes.extend_from_slice(&part[..read]),
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(_) => return Err(Refusal::Silent),
        }
        if let Some(request) = parse(&bytes, port)? {
            return Ok(request);
        }
        if bytes.len() > LONGEST_REQUEST {
            return Err(Refusal::Because(431, "the request is too long"));
        }
    }
}

/// The request in these bytes; `None` if it is not all there.
fn parse(bytes: &[u8], port: u16) -> Result<Option<Request>, Refusal> {
    let line = bytes.iter().position(|byte| *byte == b'\n').unwrap_or(bytes.len());
    if line > LONGEST_TARGET {
        return Err(Refusal::Because(414, "the address is too long"));
    }
    let mut headers = [httparse::EMPTY_HEADER; MOST_HEADERS];
    let mut request = httparse::Request::new(&mut headers);
    match request.parse(bytes) {
        Ok(httparse::Status::Complete(_)) => {}
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(httparse::Error::TooManyHeaders) => return Err(Refusal::Because(431, "the request has too many headers")),
        Err(_) => return Err(Refusal::Because(400, "this is not a request of HTTP/1.1")),
    }
    let header = |name: &str| {
        let mut found = request.headers.iter().filter(|header| header.name.eq_ignore_ascii_case(name));
        let first = found.next().map(|header| std::str::from_utf8(header.value).unwrap_or("").trim());
        (first, found.next().is_some())
    };
    let (host, twice) = header("host");
    if twice || !host.is_some_and(|host| is_own(host, port)) {
        return Err(Refusal::Because(403, "only requests to 127.0.0.1 and localhost are answered"));
    }
    if header("sec-fetch-site").0.is_some_and(|site| site == "cross-site") {
        return Err(Refusal::Because(403, "requests from other sites are not answered"));
    }
    let is_head = match request.method {
        Some("GET") => false,
        Some("HEAD") => true,
        _ => return Err(Refusal::Because(405, "this server is read-only")),
    };
    let odd = Refusal::Because(400, "the address is not one of this server");
    let target = request.path.unwrap_or("");
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    // No address here has anything but these in its path.
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/.-".contains(&byte);
    if !path.starts_with('/') || !path.bytes().all(plain) {
        return Err(odd);
    }
    let mut pairs = vec![];
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let (Some(name), Some(value)) = (decoded(name), decoded(value)) else { return Err(odd) };
        pairs.push((name, value));
    }
    let known = header("if-none-match").0.map(|version| version.trim_matches('"').to_string());
    Ok(Some(Request { path: path.to_string(), query: pairs, known, is_head }))
}

/// Whether a host is this machine by a name that no other site can have.
fn is_own(host: &str, port: u16) -> bool {
    let (name, given) = host.rsplit_once(':').unwrap_or((host, "80"));
    (name == "127.0.0.1" || name.eq_ignore_ascii_case("localhost")) && given == port.to_string()
}

/// A text with `%` escapes, decoded; `None` if an escape is no escape or the text no UTF-8.
fn decoded(text: &str) -> Option<String> {
    let (mut bytes, mut rest) = (vec![], text.as_bytes());
    while let [first, after @ ..] = rest {
        rest = after;
        bytes.push(match first {
            b'%' => {
                let [high, low, after @ ..] = after else { return None };
                rest = after;
                let digit = |byte: u8| char::from(byte).to_digit(16);
                u8::try_from(16 * digit(*high)? + digit(*low)?).ok()?
            }
            b'+' => b' ',
            byte => *byte,
        });
    }
    String::from_utf8(bytes).ok()
}

/// Sends a response and closes the connection. A client that does not take it in time gets no more of it.
pub fn write(stream: &mut TcpStream, response: &Response) {
    let until = Instant::now() + PATIENCE;
    let head = response.head();
    for mut bytes in [head.as_bytes(), &response.body[..]] {
        while !bytes.is_empty() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || stream.set_write_timeout(Some(left)).is_err() {
                return;
            }
            match stream.write(bytes) {
                Ok(0) => return,
                Ok(written) => bytes = &bytes[written..],
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return,
            }
        }
    }
    close(stream);
}

/// Tells a client that the server is busy. Sends as much as fits into the system's buffer, without waiting.
pub fn busy(mut stream: TcpStream) {
    let response = Response::refusal(503, "too many requests at a time; try again");
    if stream.set_nonblocking(true).is_ok() {
        let _ = stream.write(&[response.head().as_bytes(), &response.body[..]].concat());
    }
}

/// Closes a connection without losing the response: one closed with unread bytes would be reset.
fn close(stream: &mut TcpStream) {
    let _ = stream.shutdown(Shutdown::Write);
    let until = Instant::now() + LINGER;
    let mut rest = [0; 16 << 10];
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() || stream.set_read_timeout(Some(left)).is_err() || !matches!(stream.read(&mut rest), Ok(1..))
        {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Result<Option<Request>, Refusal> {
        parse(text.as_bytes(), 8421)
    }

    fn code(text: &str) -> u16 {
        match of(text) {
            Err(Refusal::Because(code, _)) => code,
            other => panic!("{text:?}: {other:?}"),
        }
    }

    #[test]
    fn a_request_is_read_with_its_query_and_version() {
        let text =
            "GET /api/compare?run=a%2Fb+c&run=%CE%BB HTTP/1.1\r\nHost: LOCALHOST:8421\r\nIf-None-Match: \"7\"\r\n\r\n";
        let request = of(text).unwrap().unwrap();
        assert_eq!(
            (request.path.as_str(), request.known.as_deref(), request.is_head),
            ("/api/compare", Some("7"), false)
        );
        assert_eq!(request.query, [("run".to_string(), "a/b c".to_string()), ("run".to_string(), "λ".to_string())]);
        assert_eq!(of(&text[..text.len() - 1]), Ok(None));
        assert!(of("HEAD / HTTP/1.1\r\nHost: 127.0.0.1:8421\r\n\r\n").unwrap().unwrap().is_head);
    }

    #[test]
    fn other_hosts_other_sites_other_methods_and_odd_addresses_are_refused() {
        let get = |target: &str, headers: &str| format!("GET {target} HTTP/1.1\r\n{headers}\r\n\r\n");
        let host = "Host: 127.0.0.1:8421";
        for wrong in [
            "Host: evil.example",
            "Host: evil.example:8421",
            "Host: 127.0.0.1:80",
            "Host: 127.0.0.1",
            "Host: 127.0.0.1.evil.example:8421",
            "Host: localhost:8421\r\nHost: evil.example",
            "Accept: */*",
        ] {
            assert_eq!(code(&get("/", wrong)), 403, "{wrong}");
        }
        assert_eq!(code(&get("/", &format!("{host}\r\nSec-Fetch-Site: cross-site"))), 403);
        assert_eq!(code(&format!("POST / HTTP/1.1\r\n{host}\r\n\r\n")), 405);
        for odd in
            ["/../etc/passwd%00", "/%2e%2e/", "http://127.0.0.1:8421/", "/a\\b", "/?run=%zz", "/?run=%ff", "/?run=%2"]
        {
            assert_eq!(code(&get(odd, host)), 400, "{odd}");
        }
        assert_eq!(code(&get(&format!("/{}", "x".repeat(5000)), host)), 414);
        assert_eq!(code(&get("/", &format!("{host}{}", "\r\nA: b".repeat(100)))), 431);
        assert_eq!(code("\x01\x02\r\n\r\n"), 400);
    }
}
