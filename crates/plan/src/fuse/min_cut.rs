//! Minimum vertex cuts of small graphs, by maximum flow along shortest paths (Edmonds and Karp, 1972). Each vertex is
//! split into an edge from its entrance to its exit.

use std::collections::VecDeque;

/// The capacity of an edge that no finite cut contains.
pub(crate) const INFINITE: u64 = u64::MAX / 4;

/// Returns a cheapest set of vertices whose removal disconnects all sources from all sinks; it may contain sources and
/// sinks. With several cheapest cuts, returns the one nearest to the sinks.
pub(crate) fn min_vertex_cut(
    costs: &[u64],
    edges: &[(usize, usize)],
    sources: &[usize],
    sinks: &[usize],
) -> Vec<usize> {
    // Vertex v enters at 2v and leaves at 2v + 1.
    let (source, sink) = (2 * costs.len(), 2 * costs.len() + 1);
    let mut flow = Flow { next: vec![vec![]; sink + 1], to: vec![], capacity: vec![] };
    costs.iter().enumerate().for_each(|(v, &cost)| flow.add(2 * v, 2 * v + 1, cost));
    edges.iter().for_each(|&(a, b)| flow.add(2 * a + 1, 2 * b, INFINITE));
    sources.iter().for_each(|&v| flow.add(source, 2 * v, INFINITE));
    sinks.iter().for_each(|&v| flow.add(2 * v + 1, sink, INFINITE));
    while flow.push(source, sink) {}
    let reaches = flow.reaching(sink);
    (0..costs.len()).filter(|&v| !reaches[2 * v] && reaches[2 * v + 1]).collect()
}

/// A residual graph; edges are stored in pairs with their reverse.
struct Flow {
    /// By vertex: its outgoing edges.
    next: Vec<Vec<usize>>,
    to: Vec<usize>,
    capacity: Vec<u64>,
}

impl Flow {
    fn add(&mut self, from: usize, to: usize, capacity: u64) {
        self.next[from].push(self.to.len());
        self.next[to].push(self.to.len() + 1);
        self.to.extend([to, from]);
        self.capacity.extend([capacity, 0]);
    }

    /// Augments along a shortest path; false if there is none.
    fn push(&mut self, source: usize, sink: usize) -> bool {
        let mut by: Vec<Option<usize>> = vec![None; self.next.len()];
        let mut queue = VecDeque::from([source]);
        while let Some(at) = queue.pop_front() {
            for &edge in &self.next[at] {
                let to = self.to[edge];
                if self.capacity[edge] > 0 && to != source && by[to].is_none() {
                    by[to] = Some(edge);
                    queue.push_back(to);
                }
            }
        }
        let mut path = vec![];
        let mut at = sink;
        while let Some(edge) = by[at] {
            path.push(edge);
            at = self.to[edge ^ 1];
        }
        let Some(capacity) = path.iter().map(|&edge| self.capacity[edge]).min() else { return false };
        for edge in path {
            self.capacity[edge] -= capacity;
            self.capacity[edge ^ 1] += capacity;
        }
        // Saturating an infinite path: no finite cut exists.
        capacity < INFINITE
    }

    /// Returns the vertices from which the sink is reachable in the residual graph.
    fn reaching(&self, sink: usize) -> Vec<bool> {
        let mut found = vec![false; self.next.len()];
        found[sink] = true;
        let mut queue = vec![sink];
        while let Some(at) = queue.pop() {
            for &edge in &self.next[at] {
                // The reverse edge starts at a predecessor.
                let from = self.to[edge];
                if self.capacity[edge ^ 1] > 0 && !std::mem::replace(&mut found[from], true) {
                    queue.push(from);
                }
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cheapest_vertices_are_found_those_nearest_to_the_sinks_first() {
        // 0 and 1 lead to 2, which leads to 3, 4 and 5.
        let edges = [(0, 2), (1, 2), (2, 3), (2, 4), (2, 5), (4, 5)];
        assert_eq!(min_vertex_cut(&[1, 1, 1, 1, 1, 1], &edges, &[0, 1], &[3, 4, 5]), [2]);
        assert_eq!(min_vertex_cut(&[1, 1, 9, 1, 1, 1], &edges, &[0, 1], &[3, 4]), [3, 4]);
        assert_eq!(min_vertex_cut(&[1, 0, 9, 3, 3, 3], &edges, &[0, 1], &[3, 4]), [0, 1]);
        assert_eq!(min_vertex_cut(&[0, 0, 0, 5], &[(0, 3), (1, 3)], &[0, 1], &[3]), [0, 1]);
    }

    #[test]
    fn no_cut_is_cheaper_on_random_graphs() {
        let mut state = 3u64;
        let mut random = |n: u64| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) % n
        };
        for _ in 0..300 {
            let n = 2 + random(7) as usize;
            let costs: Vec<u64> = (0..n).map(|_| random(5)).collect();
            let edges: Vec<(usize, usize)> =
                (0..n).flat_map(|b| (0..b).map(move |a| (a, b))).filter(|_| random(3) == 0).collect();
            let (sources, sinks) = (vec![0, 1], vec![n - 1]);
            let separates = |cut: &[usize]| {
                let mut reached: Vec<bool> = (0..n).map(|v| sources.contains(&v) && !cut.contains(&v)).collect();
                for &(a, b) in &edges {
                    reached[b] |= reached[a] && !cut.contains(&b);
                }
                !reached[n - 1]
            };
            let price = |cut: &[usize]| cut.iter().map(|&v| costs[v]).sum::<u64>();
            let found = min_vertex_cut(&costs, &edges, &sources, &sinks);
            let all = (0..1usize << n).map(|bits| (0..n).filter(|v| bits >> v & 1 == 1).collect::<Vec<_>>());
            let best = all.filter(|cut| separates(cut)).map(|cut| price(&cut)).min().unwrap();
            assert!(separates(&found), "{found:?}");
            assert_eq!(price(&found), best);
        }
    }
}
