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

/// Any number, and often one of those that are none.
fn odd_number() -> impl Strategy<Value = f64> {
    let odd = [f64::NAN, -f64::NAN, f64::INFINITY, f64::NEG_INFINITY, f64::MAX, f64::MIN_POSITIVE, -0.0];
    prop_oneof![2 => proptest::num::f64::ANY, 1 => proptest::sample::select(odd.to_vec())]
}

/// A form in which a number that is none stands in a page or a picture, with what is around it. Names in these tests have no
/// letters, and what the page itself is made of, its style and its script, is left out.
fn form_of_nan(text: &str) -> Option<String> {
    let mut own = text.to_lowercase();
    for (start, end) in [("<style", "</style>"), ("<script", "</script>")] {
        while let Some(from) = own.find(start) {
            let to = own[from..].find(end).map_or(own.len(), |to| from + to + end.len());
            own.replace_range(from..to, "");
        }
    }
    let is_letter = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphabetic());
    ["nan", "inf", "infinity", "undefined", "null"].into_iter().find_map(|form| {
        let mut from = 0;
        while let Some(at) = own[from..].find(form).map(|at| from + at) {
            let (before, after) = (own[..at].chars().next_back(), own[at + form.len()..].chars().next());
            // A command of a path may stand right before a number, and a unit right after it.
            let alone = !is_letter(before) || matches!(before, Some('m' | 'l' | 'h' | 'v'));
            if alone && (!is_letter(after) || own[at + form.len()..].starts_with("px")) {
                let (low, high) = (at.saturating_sub(40), (at + 40).min(own.len()));
                return Some(own.chars().skip(low).take(high - low).collect());
            }
            from = at + form.len();
        }
        None
    })
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
            Curve { name, points: points[i.min(points.len())..].to_vec(), band: band.clone(), dashed, markers, series: None }
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
    fn no_form_of_nan_is_in_any_picture_or_page(
        points in vec((odd_number(), odd_number()), 0..40),
        band in proptest::option::of(vec((odd_number(), odd_number()), 0..40)),
        values in vec(odd_number(), 0..60),
        (x_log, y_log) in any::<(bool, bool)>(),
    ) {
        let axis = |log| Axis { label: "1".into(), log };
        let curve = Curve { name: "2".into(), points, band, ..Curve::default() };
        let plot = Plot { title: "3".into(), x: axis(x_log), y: axis(y_log), curves: vec![curve.clone(), curve.dashed()] };
        let panel = Panel { title: "4".into(), rows: 6, columns: 10, values };
        let pictures = Pictures { title: "5".into(), panels: vec![panel] };
        for text in [plot.svg(), pictures.svg()] {
            prop_assert_eq!(form_of_nan(&text), None);
        }
        let sections = vec![Section::Plot(plot), Section::Pictures(pictures)];
        prop_assert_eq!(form_of_nan(&Report { sections, ..Report::default() }.html()), None);
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
fn every_form_of_nan_is_seen() {
    for text in
        ["<p>NaN</p>", "d=\"M1 NaN\"", "d=\"MNaN,2\"", "width:-infpx", "x=\"Infinity\"", "[null,1]", "y=\"-inf\""]
    {
        assert!(form_of_nan(text).is_some(), "{text}");
    }
    for text in ["<p>nano, info, finance</p>", "<script>isNaN(x)</script>", "annul"] {
        assert_eq!(form_of_nan(text), None, "{text}");
    }
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
            assert_eq!(form_of_nan(&plot.svg()), None, "{}", plot.svg());
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

#[test]
fn a_curve_has_the_colour_of_its_series_whichever_curves_are_missing() {
    let curve = |series| Curve { series, ..Curve::new("run", [(0.0, 1.0), (1.0, 2.0)]).with_markers() };
    let colours = |curves: Vec<Curve>| -> Vec<String> {
        let svg = Plot { curves, ..Plot::default() }.svg();
        let drawn = svg.split("<g class=\"curve\"").skip(1);
        drawn.map(|group| group.split("stroke=\"").nth(1).unwrap().split('"').next().unwrap().to_string()).collect()
    };
    let all = colours(vec![curve(None), curve(None), curve(None)]);
    assert_eq!(colours(vec![curve(Some(2)), curve(Some(0))]), [all[2].clone(), all[0].clone()]);
    let page = |series| Report {
        sections: vec![Section::Plot(Plot { curves: vec![curve(series)], ..Plot::default() })],
        ..Report::default()
    };
    assert!(page(Some(2)).html().contains("\"series\":2,") && page(None).html().contains("\"series\":0,"));
}
