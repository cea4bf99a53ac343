//! Communicators: sums, parts, and ranks that fail.

use bilevel_graph::{DType, ErrorKind, Link, Result};
use bilevel_ranks::{Tcp, Threads};

/// What every communicator must do.
pub(crate) fn check(link: &Link) -> Result<()> {
    let (rank, ranks) = (link.rank(), link.size());
    // Below and above the size from which a sum is cut, with lengths that no number of ranks divides.
    for count in [0, 1, 7, 1023, 4099] {
        let numbers: Vec<f64> = (0..count).map(|i| 1.0 / (1 + i + 13 * rank) as f64).collect();
        let mut bytes: Vec<u8> = numbers.iter().flat_map(|x| x.to_ne_bytes()).collect();
        link.sum(&mut bytes, DType::F64)?;
        for (i, sum) in bytes.as_chunks::<8>().0.iter().enumerate() {
            let expected = (0..ranks).map(|rank| 1.0 / (1 + i + 13 * rank) as f64).reduce(|a, b| a + b);
            assert_eq!(Some(f64::from_ne_bytes(*sum)), expected, "element {i} of {count}");
        }
    }
    let mut integers = i32::MAX.to_ne_bytes();
    link.sum(&mut integers, DType::I32)?;
    assert_eq!(i32::from_ne_bytes(integers), i32::MAX.wrapping_mul(ranks as i32));
    let lengths: Vec<usize> = (0..ranks).map(|rank| 4 * rank).collect();
    let mut all = vec![0; lengths.iter().sum()];
    link.gather(&vec![rank as u8; lengths[rank]], &lengths, &mut all)?;
    let expected: Vec<u8> = (0..ranks).flat_map(|rank| vec![rank as u8; 4 * rank]).collect();
    assert_eq!(all, expected);
    let ones: Vec<u8> = (0..expected.len() / 4).flat_map(|i| (i as f32).to_ne_bytes()).collect();
    let own = link.scatter(&ones, &lengths, DType::F32)?;
    let first: usize = (0..rank).sum();
    let found: Vec<f32> = own.as_chunks::<4>().0.iter().map(|x| f32::from_ne_bytes(*x)).collect();
    assert_eq!(found, (first..first + rank).map(|i| (i * ranks) as f32).collect::<Vec<_>>());
    let mut word = [rank as u8; 3];
    link.broadcast(&mut word, ranks - 1)?;
    assert_eq!(word, [(ranks - 1) as u8; 3]);
    assert_eq!(link.largest(7 * rank as u64)?, 7 * (ranks as u64 - 1));
    link.barrier()
}

#[test]
fn threads_sum_in_the_order_of_ranks_gather_and_scatter() {
    for ranks in [1, 2, 3, 4] {
        Threads::run(ranks, |link| check(&link)).into_iter().collect::<Result<Vec<()>>>().unwrap();
    }
}

/// Ranks that are threads of this process and connected by TCP.
fn over_tcp<R: Send>(ranks: usize, work: impl Fn(Link) -> R + Sync) -> Vec<R> {
    // A port that was free a moment ago.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let address = format!("127.0.0.1:{port}");
    let (work, address) = (&work, &address);
    std::thread::scope(|scope| {
        let start = |rank| scope.spawn(move || work(Link::new(Tcp::join(rank, ranks, address).unwrap())));
        let all: Vec<_> = (0..ranks).map(start).collect();
        all.into_iter().map(|rank| rank.join().unwrap()).collect()
    })
}

#[test]
fn tcp_sums_in_the_order_of_ranks_gathers_and_scatters() {
    for ranks in [2, 3, 4] {
        over_tcp(ranks, |link| check(&link)).into_iter().collect::<Result<Vec<()>>>().unwrap();
    }
}

#[test]
fn messages_larger_than_any_buffer_cross_each_other_over_tcp() {
    let sums = over_tcp(2, |link| {
        let mut bytes = vec![1.5f32.to_ne_bytes(); 5_000_000].concat();
        link.sum(&mut bytes, DType::F32).unwrap();
        bytes.as_chunks::<4>().0.iter().all(|x| f32::from_ne_bytes(*x) == 3.0)
    });
    assert_eq!(sums, [true, true]);
}

#[test]
fn over_tcp_a_rank_that_gives_up_or_ends_is_named_by_the_others() {
    let found = over_tcp(3, |link| match link.rank() {
        1 => {
            link.abort("the disk is full");
            None
        }
        _ => Some(link.barrier().unwrap_err().to_string()),
    });
    assert!(
        found
            .iter()
            .flatten()
            .all(|error| error.contains("rank 1 failed: the disk is full") || error.contains("ended"))
    );
    assert!(found.iter().flatten().any(|error| error.contains("rank 1 failed: the disk is full")), "{found:?}");
    let found = over_tcp(2, |link| if link.rank() == 0 { link.barrier() } else { Ok(()) });
    assert!(found[0].as_ref().unwrap_err().to_string().starts_with("rank 1 ended before the others"));
}

#[test]
fn a_rank_that_gives_up_or_ends_is_named_by_the_others() {
    let found = Threads::run(3, |link| {
        if link.rank() == 1 {
            link.abort("the disk is full");
        }
        link.barrier().unwrap_err()
    });
    for error in found {
        assert!(matches!(error.kind, ErrorKind::Ranks { .. }));
        assert_eq!(error.to_string(), "rank 1 failed: the disk is full");
    }
    let found = Threads::run(2, |link| if link.rank() == 0 { link.barrier() } else { Ok(()) });
    assert_eq!(found[0].as_ref().unwrap_err().to_string(), "rank 1 ended while rank 0 waited for it");
}
