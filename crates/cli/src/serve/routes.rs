//! The addresses of the server and their content. No part of an address becomes a path: runs are looked up by name in
//! the list.

use super::catalogue::{Catalogue, Known};
use super::comparison::comparison;
use super::curves::Curves;
use super::http::{ALONE, Request, Response};
use bilevel::files::whole_file::open_regular;
use bilevel_run::Registry;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::io::Read;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

/// The most runs that are compared on a page: as many as there are colours.
const MOST_COMPARED: usize = 8;
/// The most comparisons that are cached for clients with the same selection.
const MOST_KEPT: usize = 16;
/// The largest report that is sent, in bytes.
const LARGEST_REPORT: u64 = 64 << 20;

const PAGE: &str = include_str!("page.html");
const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

/// Everything that is served.
pub struct Site<'a> {
    registry: &'a Registry,
    catalogue: Catalogue,
    curves: Curves,
    /// Drawn comparisons by their selection, the last one first.
    drawn: Mutex<Vec<(String, Arc<Vec<u8>>)>>,
    style: Arc<Vec<u8>>,
}

impl<'a> Site<'a> {
    /// Serves the runs below this folder.
    pub fn new(registry: &'a Registry, root: &Path) -> Self {
        let style = Arc::new((bilevel_report::style() + STYLE).into_bytes());
        Site { registry, catalogue: Catalogue::new(root), curves: Curves::default(), drawn: Mutex::default(), style }
    }

    /// The answer to a request.
    pub fn answer(&self, request: &Request) -> Response {
        let text = |kind: &'static str, text: &str| Response::ok(kind, Arc::new(text.as_bytes().to_vec()));
        match request.path.as_str() {
            "/" => text("text/html; charset=utf-8", PAGE),
            "/page.css" => Response::ok("text/css; charset=utf-8", self.style.clone()),
            "/page.js" => text("text/javascript; charset=utf-8", SCRIPT),
            "/figures.js" => text("text/javascript; charset=utf-8", bilevel_report::script()),
            "/api/runs" => {
                let listing = self.catalogue.list();
                let version = format!("{}-{}", std::process::id(), listing.version);
                Response::ok("application/json", listing.json).versioned(version, request)
            }
            "/api/compare" => self.compare(request),
            "/report" => self.report(request),
            _ => Response::refusal(404, "there is no such page; the list of runs is at /"),
        }
    }

    /// The runs that a request names.
    fn named(request: &Request) -> impl Iterator<Item = &str> {
        request.query.iter().filter(|(name, _)| name == "run").map(|(_, value)| value.as_str())
    }

    fn compare(&self, request: &Request) -> Response {
        let names: Vec<&str> = Self::named(request).collect();
        if names.is_empty() || names.len() > MOST_COMPARED {
            return Response::refusal(400, "name one to eight runs, as /api/compare?run=A&run=B");
        }
        let listing = self.catalogue.list();
        let found: Option<Vec<&Known>> = names.iter().map(|name| listing.run(name)).collect();
        let Some(found) = found else { return Response::refusal(404, "there is no run with this name") };
        let mut hash = DefaultHasher::new();
        for known in &found {
            (&known.overview.path, known.stamp, known.overview.status.word()).hash(&mut hash);
        }
        let version = format!("{:016x}", hash.finish());
        let kind = "text/html; charset=utf-8";
        let kept = {
            let drawn = self.drawn.lock().unwrap_or_else(PoisonError::into_inner);
            drawn.iter().find(|(known, _)| *known == version).map(|(_, body)| body.clone())
        };
        let body = kept.unwrap_or_else(|| {
            let body = Arc::new(comparison(&found, &self.curves, self.registry).into_bytes());
            let mut drawn = self.drawn.lock().unwrap_or_else(PoisonError::into_inner);
            drawn.truncate(MOST_KEPT - 1);
            drawn.insert(0, (version.clone(), body.clone()));
            body
        });
        Response::ok(kind, body).versioned(version, request)
    }

    fn report(&self, request: &Request) -> Response {
        let listing = self.catalogue.list();
        let Some(known) = Self::named(request).next().and_then(|name| listing.run(name)) else {
            return Response::refusal(404, "there is no run with this name");
        };
        let mut page = vec![];
        let Ok(file) = open_regular(&known.overview.path.join("report.html")) else {
            return Response::refusal(404, "this run has no report yet; a run writes its report when it ends");
        };
        match file.take(LARGEST_REPORT + 1).read_to_end(&mut page) {
            Ok(length) if length as u64 <= LARGEST_REPORT => {
                Response::ok("text/html; charset=utf-8", Arc::new(page)).under(ALONE)
            }
            _ => Response::refusal(413, "the report cannot be shown here; open the file itself"),
        }
    }
}
