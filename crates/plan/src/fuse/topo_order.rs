//! A topological order kept up to date while edges are added (Pearce and Kelly, 2006): adding an edge that would close a
//! cycle is refused, and the work is limited to the part of the order it disturbs.

use std::cell::{RefCell, RefMut};

/// Groups and the edges between them.
#[derive(Clone, Default)]
pub(crate) struct TopoOrder {
    /// Place of each group in the order.
    place: Vec<usize>,
    before: Vec<Vec<usize>>,
    after: Vec<Vec<usize>>,
    met: RefCell<Met>,
}

/// Whom a walk has met. Walks are many and most are short, so all of them use the same memory.
#[derive(Clone, Default)]
struct Met {
    /// By group: the number of the last walk that met it.
    by: Vec<u64>,
    /// The number of this walk.
    walk: u64,
}

impl Met {
    /// Meets a group; false where the walk has met it before.
    fn meet(&mut self, group: usize) -> bool {
        std::mem::replace(&mut self.by[group], self.walk) != self.walk
    }
}

impl TopoOrder {
    /// A new group, last in the order.
    pub fn add_group(&mut self) -> usize {
        self.place.push(self.place.len());
        self.before.push(vec![]);
        self.after.push(vec![]);
        self.place.len() - 1
    }

    /// Where a group stands in the order.
    pub fn place(&self, group: usize) -> usize {
        self.place[group]
    }

    /// The groups that must run before this one.
    pub fn before(&self, group: usize) -> &[usize] {
        &self.before[group]
    }

    /// The groups that must run after this one.
    pub fn after(&self, group: usize) -> &[usize] {
        &self.after[group]
    }

    /// True where a group of this kind must run after this one, at whatever distance.
    pub fn any_after(&self, group: usize, kind: impl Fn(usize) -> bool) -> bool {
        let mut met = self.walk();
        self.meets(&mut met, vec![group], &self.after, kind)
    }

    /// True where a group would come to wait for one of this kind, at whatever distance, if it came to wait for these.
    pub fn any_new_before(&self, group: usize, others: &[usize], kind: impl Fn(usize) -> bool) -> bool {
        let mut met = self.walk();
        met.meet(group);
        // What it waits for already is not met again, nor is anything before that.
        self.meets(&mut met, vec![group], &self.before, |_| false);
        let others: Vec<usize> = others.iter().copied().filter(|&other| met.meet(other)).collect();
        others.iter().any(|&other| kind(other)) || self.meets(&mut met, others, &self.before, kind)
    }

    /// Walks on from these groups until one of this kind is met.
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

    /// The start of a walk, which has met nobody.
    fn walk(&self) -> RefMut<'_, Met> {
        let mut met = self.met.borrow_mut();
        met.by.resize(self.place.len(), 0);
        met.walk += 1;
        met
    }

    /// Requires `first` to run before `second`; false, and nothing changed, where `second` must already run before `first`.
    pub fn add_edge(&mut self, first: usize, second: usize) -> bool {
        if first == second {
            return false;
        }
        // One of the two lists is short even where a group has very many neighbours.
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
            // What leads to `first` moves before what follows from `second`, in the places both had.
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

    /// True where no third group must run between these two.
    pub fn adjacent(&self, a: usize, b: usize) -> bool {
        let (first, second) = if self.place[a] < self.place[b] { (a, b) } else { (b, a) };
        let limit = self.place[second];
        let between = self.after[first].iter().copied().filter(|&next| next != second && self.place[next] < limit);
        self.reach(between.collect(), &self.after, |place| place <= limit, Some(second)).is_some()
    }

    /// Gives all edges of `other` to `group`, which takes its work over; the two must be adjacent. False where that closes a
    /// cycle, which between adjacent groups it cannot: the order is lost then.
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

    /// These groups and those reached from them within the places allowed; `None` when `forbidden` is among the latter.
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
