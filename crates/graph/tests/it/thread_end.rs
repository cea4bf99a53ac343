//! A graph that a thread keeps until its very end.

use bilevel_graph::{DType, ErrorKind, Graph};
use std::cell::RefCell;

/// Uses its graph when it is dropped, after the table of graphs may be gone.
struct Last(Graph);

thread_local! {
    static KEPT: RefCell<Option<Graph>> = const { RefCell::new(None) };
    static LAST: RefCell<Option<Last>> = const { RefCell::new(None) };
}

impl Drop for Last {
    fn drop(&mut self) {
        for graph in [&self.0, &Graph::new()] {
            // Either the table is still there or every tensor is one of a graph that is gone; nothing panics.
            if let Err(error) = (graph.input("late", [2], DType::F64) * 2.0).check() {
                assert!(matches!(error.kind, ErrorKind::ForeignTensor { .. }), "{error}");
            }
        }
    }
}

#[test]
fn a_graph_in_a_thread_local_variable_outlives_the_table_of_graphs() {
    for made_first in [false, true] {
        let thread = std::thread::spawn(move || {
            if made_first {
                // The table of graphs is registered before the variables that keep one, or after them.
                drop(Graph::new());
            }
            KEPT.set(None);
            LAST.set(None);
            KEPT.set(Some(Graph::new()));
            LAST.set(Some(Last(Graph::new())));
        });
        thread.join().unwrap();
    }
}
