//! Long curves thinned to the visible points: in each column of pixels the first, lowest, highest and last point.

/// A place on the page.
pub(crate) type Place = (f64, f64);

/// Columns are half a unit wide, a pixel on a screen of high resolution.
const COLUMNS: f64 = 2.0;

/// The drawn parts of a curve: each run of places without a gap, thinned. `None` is a gap.
pub(crate) fn runs(places: impl Iterator<Item = Option<Place>>) -> Vec<Vec<Place>> {
    let mut runs = Vec::new();
    let mut column: Vec<Place> = Vec::new();
    let mut run: Vec<Place> = Vec::new();
    for place in places {
        let Some(place) = place else {
            flush(&mut column, &mut run);
            runs.push(std::mem::take(&mut run));
            continue;
        };
        if column.first().is_some_and(|first| !same_column(first.0, place.0)) {
            flush(&mut column, &mut run);
        }
        column.push(place);
    }
    flush(&mut column, &mut run);
    runs.push(run);
    runs.retain(|run| !run.is_empty());
    runs
}

fn same_column(a: f64, b: f64) -> bool {
    (a * COLUMNS).floor() == (b * COLUMNS).floor()
}

/// Moves the points to keep of a column to the run.
fn flush(column: &mut Vec<Place>, run: &mut Vec<Place>) {
    let last = column.len().saturating_sub(1);
    let by_y = |a: &usize, b: &usize| column[*a].1.total_cmp(&column[*b].1);
    let mut kept = vec![0, last];
    kept.extend((0..column.len()).min_by(by_y));
    kept.extend((0..column.len()).max_by(by_y));
    kept.sort_unstable();
    kept.dedup();
    run.extend(kept.into_iter().filter_map(|i| column.get(i)));
    column.clear();
}

/// The drawn parts of a band of (x, low, high): in each column its lowest and highest edge.
pub(crate) fn band_runs(places: impl Iterator<Item = Option<(f64, f64, f64)>>) -> Vec<Vec<(f64, f64, f64)>> {
    let mut runs = vec![Vec::<(f64, f64, f64)>::new()];
    for place in places {
        match (place, runs.last_mut()) {
            (Some((x, low, high)), Some(run)) => match run.last_mut() {
                Some(last) if same_column(last.0, x) => *last = (last.0, last.1.min(low), last.2.max(high)),
                _ => run.push((x, low, high)),
            },
            _ => runs.push(Vec::new()),
        }
    }
    runs.retain(|run| !run.is_empty());
    runs
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use proptest::test_runner::RngSeed;

    #[test]
    fn a_hundred_thousand_points_become_what_fits_on_the_page() {
        let places = (0..100_000).map(|i| Some((i as f64 * 0.006, (i as f64).sin())));
        let thinned = runs(places);
        assert_eq!(thinned.len(), 1);
        assert!(thinned[0].len() <= 4 * 1201, "{}", thinned[0].len());
    }

    #[test]
    fn gaps_split_a_curve() {
        let places = [Some((0.0, 1.0)), None, None, Some((2.0, 1.0)), Some((3.0, 1.0))];
        assert_eq!(runs(places.into_iter()), [vec![(0.0, 1.0)], vec![(2.0, 1.0), (3.0, 1.0)]]);
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            rng_seed: RngSeed::Fixed(7),
            failure_persistence: None,
            ..ProptestConfig::default()
        })]

        #[test]
        fn thinning_keeps_ends_and_extremes_of_every_column(ys in proptest::collection::vec(-9.0..9.0f64, 1..400)) {
            let all: Vec<Place> = ys.iter().enumerate().map(|(i, &y)| (i as f64 / 16.0, y)).collect();
            let thinned = runs(all.iter().copied().map(Some)).remove(0);
            prop_assert_eq!(thinned.first(), all.first());
            prop_assert_eq!(thinned.last(), all.last());
            for column in all.chunk_by(|a, b| same_column(a.0, b.0)) {
                for extreme in [f64::min, f64::max] {
                    let of = |places: &mut dyn Iterator<Item = &Place>| places.map(|p| p.1).reduce(extreme);
                    let kept = of(&mut thinned.iter().filter(|p| same_column(p.0, column[0].0)));
                    prop_assert_eq!(kept, of(&mut column.iter()));
                }
            }
        }
    }
}
