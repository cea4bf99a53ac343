//! Odd data: nothing panics, and what comes out is still well formed.

use bilevel_report::{Axis, Column, Curve, Panel, Pictures, Plot, Report, Section, Table};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

/// Whether tags are balanced and properly quoted, and all text is escaped; as much of XML as our writer uses.
fn well_formed(svg: &str) -> Result<(), String> {
    let mut open = Vec::new();
    let mut rest = svg;
    while let Some(start) = rest.find('<') {
        let text = &rest[..start];
        if text.contains('>') || text.replace("&amp;", "").replace("&lt;", "").contains("& ") {
            return Err(format!("text is not escaped: {text}"));
        }
        let end = rest[start..].find('>').ok_or("a tag does not end")? + start;
        let tag = &rest[start + 1..end];
        rest = &rest[end + 1..];
        if tag.matches('"').count() % 2 == 1 {
            return Err(format!("quotes in <{tag}>"));
        }
        let name = tag.trim_start_matches('/').split([' ', '/']).next().unwrap_or("").to_string();
        if tag.starts_with('/') {
            if open.pop().as_ref() != Some(&name) {
                return Err(format!("</{name}> closes nothing"));
            }
        } else if !tag.ends_with('/') {
            open.push(name);
        }
    }
    if open.is_empty() { Ok(()) } else { Err(format!("{open:?} are not closed")) }
}

fn no_strange_numbers(svg: &str) -> bool {
    // Only attributes hold coordinates; names may say what they like.
    svg.split('"').skip(1).step_by(2).all(|value| value.len() < 3 || !(value.contains("NaN ") || value.contains("inf")))
}

fn check(plot: &Plot) -> Result<(), TestCaseError> {
    let svg = plot.svg();
    well_formed(&svg).map_err(TestCaseError::fail)?;
    prop_assert!(plot.png(64).unwrap().starts_with(b"\x89PNG"));
    prop_assert!(plot.png(600).unwrap().starts_with(b"\x89PNG"));
    let page = Report { sections: vec![Section::Plot(plot.clone())], ..Report::default() }.html();
    prop_assert!(page.ends_with("</html>\n"));
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 60,
        rng_seed: RngSeed::Fixed(7),
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn any_plot_can_be_drawn(
        title: String, names in vec(any::<String>(), 0..6),
        points in vec(any::<(f64, f64)>(), 0..40),
        band in proptest::option::of(vec(any::<(f64, f64)>(), 0..40)),
        logs: (bool, bool), dashed: bool, markers: bool,
    ) {
        let curves = names.into_iter().enumerate().map(|(i, name)| {
            Curve { name, points: points[i.min(points.len())..].to_vec(), band: band.clone(), dashed, markers }
        });
        let axis = |log| Axis { label: title.clone(), log };
        check(&Plot { title: title.clone(), x: axis(logs.0), y: axis(logs.1), curves: curves.collect() })?;
    }

    #[test]
    fn any_pictures_can_be_drawn(title: String, rows in 0usize..90, columns in 0usize..90, values: Vec<f64>) {
        let panel = Panel { title: title.clone(), rows, columns, values };
        let pictures = Pictures { title, panels: vec![panel.clone(), Panel::default(), panel] };
        well_formed(&pictures.svg()).map_err(TestCaseError::fail)?;
        prop_assert!(pictures.png(300).is_ok());
    }

    #[test]
    fn a_table_fits_its_terminal(
        names in vec(any::<String>(), 0..8),
        rows in vec(vec(any::<String>(), 0..9), 0..8),
        width in 0usize..120,
    ) {
        let column = |(i, name): (usize, String)| Column { name, numeric: i % 2 == 1 };
        let columns: Vec<Column> = names.into_iter().enumerate().map(column).collect();
        let count = rows.iter().map(Vec::len).max().unwrap_or(0).max(columns.len());
        let table = Table { columns, rows, caption: String::new() };
        // A letter a column and two spaces between: less than that is not to be had.
        let least = count + 2 * count.saturating_sub(1);
        let text = table.text(width);
        prop_assert_eq!(text.lines().count(), table.rows.len() + 1);
        for line in text.lines() {
            prop_assert!(line.chars().count() <= width.max(least), "{line:?}");
        }
        prop_assert_eq!(table.markdown().lines().count(), table.rows.len() + 2);
        well_formed(&table.html()).map_err(TestCaseError::fail)?;
    }
}

fn one(curve: Curve, log: bool) -> Plot {
    Plot { y: Axis { label: "y".into(), log }, curves: vec![curve], ..Plot::default() }
}

#[test]
fn odd_plots_are_drawn() {
    let (nan, inf) = (f64::NAN, f64::INFINITY);
    let curves = [
        vec![],
        vec![(0.0, 0.0)],
        vec![(1.0, 5.0); 100],
        vec![(nan, nan), (inf, 1.0), (1.0, -inf)],
        vec![(0.0, 1e308), (1.0, -1e308)],
        vec![(0.0, 5e-324), (1.0, 0.0)],
        vec![(0.0, 1.0), (1.0, 1.0 + f64::EPSILON)],
        vec![(0.0, -1.0), (1.0, 0.0), (2.0, 1e-300), (3.0, 1e300)],
    ];
    for points in curves {
        for log in [false, true] {
            let plot = one(Curve::new("<&\"'>", points.clone()).with_band(vec![(-1.0, inf); points.len()]), log);
            check(&plot).unwrap();
            assert!(no_strange_numbers(&plot.svg()), "{}", plot.svg());
        }
    }
}

#[test]
fn a_single_point_is_a_dot() {
    assert!(one(Curve::new("λ", [(1.0, 2.0)]), false).svg().contains("<circle"));
}

#[test]
fn hundreds_of_curves_leave_room_for_themselves() {
    let curve = |i: usize| Curve::new(format!("curve {i} of a great many"), [(0.0, i as f64), (1.0, 2.0 * i as f64)]);
    let plot = Plot { curves: (0..300).map(curve).collect(), ..Plot::default() };
    check(&plot).unwrap();
    let svg = plot.svg();
    assert!(svg.contains("more</text>"), "a legend that does not fit says how much is left out");
    assert_eq!(svg.matches("class=\"curve\"").count(), 300);
}

#[test]
fn long_names_are_cut_and_kept_in_full_for_those_who_ask() {
    let name = "a name that goes on ".repeat(50);
    let svg = one(Curve::new(&name, [(0.0, 1.0), (1.0, 2.0)]), false).svg();
    assert!(svg.contains(&format!("<title>{name}</title>")) && svg.contains("…</text>"));
}

#[test]
fn long_curves_make_small_files() {
    let points = (0..100_000).map(|i| (i as f64, (i as f64 * 0.37).sin() + (i as f64 * 1e-4).cos()));
    let plot = one(Curve::new("long", points).with_band(vec![(-3.0, 3.0); 100_000]), false);
    assert!(plot.svg().len() < 100_000, "{}", plot.svg().len());
    let page = Report { sections: vec![Section::Plot(plot)], ..Report::default() }.html();
    assert!(page.len() < 400_000, "{}", page.len());
}

#[test]
fn a_page_asks_for_nothing_from_the_network() {
    let sections = vec![
        Section::Text { title: "<script>".into(), text: "`a` ` <b>".into() },
        Section::Warnings(vec![]),
        Section::Plot(Plot {
            title: "</script>".into(),
            curves: vec![Curve::new("</script>", [(0.0, 1.0)])],
            ..Plot::default()
        }),
        Section::Code { title: String::new(), text: "</code><img src=x>".into() },
    ];
    let page = Report { title: "</title>".into(), sections, ..Report::default() }.html();
    assert!(!page.contains("src=x>") && !page.contains("<b>") && !page.contains("2 warnings"));
    assert_eq!(page.matches("<script").count(), 2, "the data of one plot, and the script of the page");
    let addresses: Vec<&str> = page.match_indices("http").map(|(i, _)| &page[i..(i + 26).min(page.len())]).collect();
    assert!(addresses.iter().all(|address| *address == "http://www.w3.org/2000/svg"), "{addresses:?}");
}
