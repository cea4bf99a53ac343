//! The two stages of a software-pipelined step: the late stage runs concurrently with the next early stage.
//!
//!   early: θ ← θ − ε·∇L(θ),    late: h ← h + w·∇V(θ)
//!
//! The next step begins with some of the carried values; the others are only accumulated, and nothing else depends on
//! them. The groups that lead to the first kind are the early stage of a step, all others the late stage. The early
//! stage of the next step does not depend on this late stage, so both can run at once in separate memory.

use crate::schedule::Schedule;
use crate::schedule::in_place::Carry;

impl Schedule {
    /// By group: whether it belongs to the late stage. `None` if there is no late stage, or if a value that the next
    /// step begins with is copied at the end of a step.
    pub fn late_groups(&self) -> Option<Vec<bool>> {
        let mut number_of = vec![None; self.nodes.len()];
        self.carries.iter().enumerate().for_each(|(number, carry)| number_of[carry.input] = Some(number));
        let is_early = self.depended_on(&number_of);
        let early = || self.carries.iter().zip(&is_early).filter(|(_, is_early)| **is_early).map(|(carry, _)| carry);
        if early().any(|carry| !carry.in_place) {
            return None;
        }
        // By group: the groups it depends on; by carried input: the groups that read it.
        let mut needs: Vec<Vec<usize>> = vec![vec![]; self.groups().len()];
        let mut readers: Vec<Vec<usize>> = vec![vec![]; self.carries.len()];
        for (group, members) in self.groups().iter().map(|group| &group.members).enumerate() {
            for (read, _) in members.iter().flat_map(|&id| self.nodes[id].reads()) {
                needs[group].extend(self.group_of(read));
                number_of[read].into_iter().for_each(|number| readers[number].push(group));
            }
        }
        // Readers of an old value run before it is overwritten.
        let writer = |carry: &Carry| carry.next.at().and_then(|(node, _)| self.group_of(node));
        for (carry, readers) in self.carries.iter().zip(&readers).filter(|(carry, _)| carry.in_place) {
            writer(carry).into_iter().for_each(|writer| needs[writer].extend(readers));
        }
        let mut leads = vec![false; self.groups().len()];
        let mut open: Vec<usize> = early().filter_map(writer).collect();
        while let Some(group) = open.pop() {
            if !std::mem::replace(&mut leads[group], true) {
                open.extend(&needs[group]);
            }
        }
        // An early stage that reads an accumulated value would have to wait for the late stage.
        let begins_late =
            |(readers, is_early): (&Vec<usize>, &bool)| !is_early && readers.iter().any(|&group| leads[group]);
        let late: Vec<bool> = (0..leads.len()).map(|group| group >= self.prologue && !leads[group]).collect();
        let has_both = late.contains(&true) && leads[self.prologue..].contains(&true);
        (has_both && !readers.iter().zip(&is_early).any(begins_late)).then_some(late)
    }

    /// By carried input: whether the next value of another depends on it.
    fn depended_on(&self, number_of: &[Option<usize>]) -> Vec<bool> {
        let mut found = vec![false; self.carries.len()];
        // By node: the last carried input from which it was visited.
        let mut seen = vec![usize::MAX; self.nodes.len()];
        for (number, carry) in self.carries.iter().enumerate() {
            let mut open: Vec<usize> = carry.next.at().map(|(node, _)| node).into_iter().collect();
            while let Some(node) = open.pop() {
                if std::mem::replace(&mut seen[node], number) != number {
                    open.extend(self.nodes[node].reads().map(|(read, _)| read));
                    number_of[node].filter(|&other| other != number).into_iter().for_each(|other| found[other] = true);
                }
            }
        }
        found
    }
}
