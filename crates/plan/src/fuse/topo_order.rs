//! A dynamic topological order (Pearce and Kelly, 2006). An edge that would close a cycle is refused, and only the
//! affected part of the order is updated.

use std::cell::{RefCell, RefMut};

/// Groups and the edges between them.
#[derive(Clone, Default)]
pub(crate) struct TopoOrder {
    /// The position of each group.
    place: Vec<usize>,
    before: Vec<Vec<usize>>,
    after: Vec<Vec<usize>>,
    met: RefCell<Met>,
}

/// The visited marks of a traversal. Traversals are frequent and mostly short, so they share this memory.
#[derive(Clone, Default)]
struct Met {
    /// By group: the number of the last traversal that visited it.
    by: Vec<u64>,
    /// The number of the current traversal.
    walk: u64,
}

impl Met {
    /// Marks a group as visited; false if it already was.
    fn meet(&mut self, group: usize) -> bool {
        std::mem::replace(&mut self.by[group], self.walk) != self.walk
    }
}

impl TopoOrder {
    /// Adds a group at the end of the order.
    pub fn add_group(&mut self) -> usize {
        self.place.push(self.place.len());
        self.before.push(vec![]);
        self.after.push(vec![]);
        self.place.len() - 1
    }

    /// Returns the position of a group.
    pub fn place(&self, group: usize) -> usize {
        self.place[group]
    }

    /// Returns the groups that must run before this one.
    pub fn before(&self, group: usize) -> &[usize] {
        &self.before[group]
    }

    /// Returns the groups that must run after this one.
    pub fn after(&self, group: usize) -> &[usize] {
        &self.after[group]
    }

    /// Returns true if a descendant of this group satisfies the predicate.
    pub fn any_after(&self, group: usize, kind: impl Fn(usize) -> bool) -> bool {
        let mut met = self.walk();
        self.meets(&mut met, vec![group], &self.after, kind)
    }

    /// Returns true if adding these dependencies would give a group a new ancestor that satisfies the predicate.
    pub fn any_new_before(&self, group: usize, others: &[usize], kind: impl Fn(usize) -> bool) -> bool {
        let mut met = self.walk();
        met.meet(group);
        // Existing ancestors are marked, so that they are not visited again.
        self.meets(&mut met, vec![group], &self.before, |_| false);
        let others: Vec<usize> = others.iter().copied().filter(|&other| met.meet(other)).collect();
        others.iter().any(|&other| kind(other)) || self.meets(&mut met, others, &self.before, kind)
    }

    /// Traverses from these groups until one satisfies the predicate.
    fn meets(&self, met: &mut Met, from: Vec<usize>, edges: &[Vec<usize>], kind: impl Fn(usize) -> bool) -> bool {
        let mut next = from;
        while let Some(group) = next.pop() {
            for &group in edges[group].iter().filter(|&&group| met.meet(group)) {
                if kind(group) {
                    return true;
                }
                next.push(group);
            }
        }
        false
    }

    /// Begins a traversal.
    fn walk(&self) -> RefMut<'_, Met> {
        let mut met = self.met.borrow_mut();
        met.by.resize(self.place.len(), 0);
        met.walk += 1;
        met
    }

    /// Adds the edge from `first` to `second`. Returns false, and changes nothing, if that would close a cycle.
    pub fn add_edge(&mut self, first: usize, second: usize) -> bool {
        if first == second {
            return false;
        }
        // At least one of the two lists is usually short.
        let (after, before) = (&self.after[first], &self.before[second]);
        if if after.len() <= before.len() { after.contains(&second) } else { before.contains(&first) } {
            return true;
        }
        if self.place[first] > self.place[second] {
            let (low, high) = (self.place[second], self.place[first]);
            let Some(mut forward) = self.reach(vec![second], &self.after, |place| place <= high, Some(first)) else {
                return false;
            };
            let Some(mut backward) = self.reach(vec![first], &self.before, |place| place >= low, None) else {
                return false;
            };
            // The ancestors of `first` move before the descendants of `second`, within the positions of both.
            forward.sort_unstable_by_key(|&g| self.place[g]);
            backward.sort_unstable_by_key(|&g| self.place[g]);
            let mut places: Vec<usize> = backward.iter().chain(&forward).map(|&g| self.place[g]).collect();
            places.sort_unstable();
            for (&group, place) in backward.iter().chain(&forward).zip(places) {
                self.place[group] = place;
            }
        }
        self.after[first].push(second);
        self.before[second].push(first);
        true
    }

    /// Returns true if no third group must run between these two.
    pub fn adjacent(&self, a: usize, b: usize) -> bool {
        let (first, second) = if self.place[a] < self.place[b] { (a, b) } else { (b, a) };
        let limit = self.place[second];
        let between = self.after[first].iter().copied().filter(|&next| next != second && self.place[next] < limit);
        self.reach(between.collect(), &self.after, |place| place <= limit, Some(second)).is_some()
    }

    /// Moves all edges of `other` to `group`; the two must be adjacent. Returns false, with the order corrupted, if
    /// that closes a cycle, which cannot happen for adjacent groups.
    pub fn contract(&mut self, group: usize, other: usize) -> bool {
        let (before, after) = (self.before[other].clone(), self.after[other].clone());
        for list in [&mut self.before[group], &mut self.after[group]] {
            list.retain(|&g| g != other);
        }
        for &g in &before {
            self.after[g].retain(|&h| h != other);
        }
        for &g in &after {
            self.before[g].retain(|&h| h != other);
        }
        self.before[other].clear();
        self.after[other].clear();
        before.into_iter().filter(|&g| g != group).all(|g| self.add_edge(g, group))
            && after.into_iter().filter(|&g| g != group).all(|g| self.add_edge(group, g))
    }

    /// Returns these groups and all reachable ones within the allowed positions; `None` if `forbidden` is reachable.
    fn reach(
        &self,
        from: Vec<usize>,
        edges: &[Vec<usize>],
        allowed: impl Fn(usize) -> bool,
        forbidden: Option<usize>,
    ) -> Option<Vec<usize>> {
        let mut met = self.walk();
        let mut found = from;
        found.retain(|&group| met.meet(group));
        let mut next = 0;
        while next < found.len() {
            for &group in &edges[found[next]] {
                if Some(group) == forbidden {
                    return None;
                }
                if allowed(self.place[group]) && met.meet(group) {
                    found.push(group);
                }
            }
            next += 1;
        }
        Some(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edges_that_close_a_cycle_are_refused_and_all_others_kept_in_order() {
        let mut state = 1u64;
        let mut random = |n: usize| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) as usize % n
        };
        for size in [2, 5, 30] {
            let mut order = TopoOrder::default();
            for _ in 0..size {
                order.add_group();
            }
            let mut reachable = vec![vec![false; size]; size];
            for _ in 0..size * 6 {
                let (a, b) = (random(size), random(size));
                let accepted = order.add_edge(a, b);
                assert_eq!(accepted, a != b && !reachable[b][a], "{a} before {b}");
                if accepted {
                    reachable[a][b] = true;
                    for i in 0..size {
                        for j in 0..size {
                            reachable[i][j] |= (i == a || reachable[i][a]) && (j == b || reachable[b][j]);
                        }
                    }
                }
                for g in 0..size {
                    assert!(order.after(g).iter().all(|&h| order.place[g] < order.place[h]));
                }
            }
        }
    }
}
