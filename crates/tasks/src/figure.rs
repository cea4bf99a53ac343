//! Curves as plain numbers, for whoever draws them.

use crate::row::quoted;

/// A curve: its name and its points.
pub type Series = (String, Vec<(f64, f64)>);

/// A figure: named series of points.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// What it shows.
    pub title: String,
    /// Label of the horizontal axis.
    pub x: &'static str,
    /// Label of the vertical axis.
    pub y: &'static str,
    /// Each curve with its name.
    pub series: Vec<Series>,
}

impl Figure {
    /// The figure as one line of JSON.
    ///
    /// ```
    /// let figure = bilevel_tasks::Figure {
    ///     title: "Errors".into(),
    ///     x: "T",
    ///     y: "error",
    ///     series: vec![("RMD".into(), vec![(50.0, 0.02), (100.0, 0.01)])],
    /// };
    /// assert!(figure.to_json().ends_with(r#"[{"name":"RMD","points":[[50,0.02],[100,0.01]]}]}"#));
    /// ```
    pub fn to_json(&self) -> String {
        let number = |n: f64| if n.is_finite() { n.to_string() } else { "null".into() };
        let curve = |(name, points): &Series| {
            let points: Vec<_> = points.iter().map(|(x, y)| format!("[{},{}]", number(*x), number(*y))).collect();
            format!("{{\"name\":{},\"points\":[{}]}}", quoted(name), points.join(","))
        };
        format!(
            "{{\"title\":{},\"x\":{},\"y\":{},\"series\":[{}]}}",
            quoted(&self.title),
            quoted(self.x),
            quoted(self.y),
            self.series.iter().map(curve).collect::<Vec<_>>().join(",")
        )
    }
}
