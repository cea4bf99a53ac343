//! How a routine gets the batches of streams: it runs step by step, and before each step the batch is written into a buffer
//! that no other routine reads.

use crate::Result;
use crate::compiled::key::Key;
use crate::outer::stopping::StopSignal;
use crate::problem::feeding::loader::{Loader, Ticket};
use crate::problem::feeding::stream::At;
use bilevel_graph::Buffer;
use std::ops::Range;
use std::sync::Arc;

/// How many batches are read ahead.
const AHEAD: u32 = 2;

/// The streams that one routine reads.
pub(crate) struct Feed {
    outlets: Vec<Outlet>,
    stop: StopSignal,
}

/// One stream in one routine.
pub(crate) struct Outlet {
    loader: Arc<Loader>,
    at: At,
    buffer: Buffer,
    /// The batch in the buffer.
    holds: Option<Arc<Ticket>>,
    /// The batches that will probably be needed next.
    ahead: Vec<Arc<Ticket>>,
    /// The step that was needed last.
    last: Option<u32>,
}

impl Outlet {
    pub fn new(loader: Arc<Loader>, at: At, buffer: Buffer) -> Self {
        Outlet { loader, at, buffer, holds: None, ahead: vec![], last: None }
    }

    fn step(&self, step: u32) -> u32 {
        match self.at {
            At::Step => step,
            At::Fixed(step) => step,
        }
    }

    /// A ticket for the batch of this step; `None` if it is already in the buffer.
    fn ask(&self, key: Key, step: u32) -> Option<Arc<Ticket>> {
        let there = self.holds.as_ref().is_some_and(|ticket| ticket.is_for(key, step));
        (!there).then(|| self.loader.ask(key, step, true))
    }

    fn write(&mut self, ticket: Arc<Ticket>, stop: &StopSignal) -> Result<()> {
        self.holds = None;
        self.buffer.write(self.loader.wait(&ticket, stop)?)?;
        self.holds = Some(ticket);
        Ok(())
    }

    /// Requests the next batches while this step of a call runs: those of its following steps, or, for calls of a
    /// single step, those in the caller's direction.
    fn look_ahead(&mut self, key: Key, step: u32, steps: &Range<u32>) {
        if let At::Fixed(_) = self.at {
            return;
        }
        let back = self.last.is_some_and(|last| last == step.wrapping_add(1));
        let on = self.last.is_some_and(|last| last.wrapping_add(1) == step);
        self.last = Some(step);
        let next = |n: u32| match steps.len() > 1 {
            true => step.checked_add(n).filter(|next| *next < steps.end),
            false if on => step.checked_add(n),
            false if back => step.checked_sub(n),
            false => None,
        };
        let tickets = (1..=AHEAD).filter_map(next).map(|next| self.loader.ask(key, next, false)).collect();
        self.ahead = tickets;
    }
}

impl Feed {
    /// `None` if nothing is read.
    pub fn new(outlets: Vec<Outlet>, stop: StopSignal) -> Option<Self> {
        (!outlets.is_empty()).then_some(Feed { outlets, stop })
    }

    /// The stretches of these steps with one batch: single steps, or all of them if every stream is read at a fixed
    /// step.
    pub fn stretches(&self, steps: Range<u32>) -> impl Iterator<Item = Range<u32>> + use<> {
        let each = self.outlets.iter().any(|outlet| outlet.at == At::Step);
        let length = if each { 1 } else { steps.end.saturating_sub(steps.start).max(1) };
        steps.clone().step_by(length as usize).map(move |from| from..(from + length).min(steps.end))
    }

    /// Puts the batches of one of these steps into the buffers, and has those read that come after it.
    pub fn fill(&mut self, key: Key, step: u32, steps: &Range<u32>) -> Result<()> {
        // All streams are asked before one is waited for.
        let tickets: Vec<_> = self.outlets.iter().map(|outlet| outlet.ask(key, outlet.step(step))).collect();
        for (outlet, ticket) in self.outlets.iter_mut().zip(tickets) {
            if let Some(ticket) = ticket {
                outlet.write(ticket, &self.stop)?;
            }
            outlet.look_ahead(key, step, steps);
        }
        Ok(())
    }
}
