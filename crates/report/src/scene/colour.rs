//! Colours: each ink in light and dark, and the scales of heat maps.

/// A colour as red, green and blue.
pub(crate) type Rgb = [u8; 3];

/// The colour of a mark. Inks other than `Rgb` follow the reader's choice of light or dark on a page.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Ink {
    /// The background.
    Surface,
    /// Titles and names.
    Text,
    /// Labels and ticks.
    Muted,
    /// Grid lines.
    Grid,
    /// Axes.
    Axis,
    /// A curve.
    Series(usize),
    /// This colour, always.
    Rgb(Rgb),
}

/// Hues after Okabe and Ito's palette, which people with any kind of colour vision can tell apart, with a lightness that
/// stands out from white (left) and from black (right). Curves that often lie on each other, such as the first and the third, have
/// colours that are furthest apart.
const SERIES: [[&str; 2]; 8] = [
    ["#0072b2", "#4aa8e8"],
    ["#d55e00", "#f28b4b"],
    ["#c2459f", "#ee8fd4"],
    ["#1e8f5a", "#35c78a"],
    ["#8a6a00", "#e2c23d"],
    ["#3b2c96", "#9d8cf5"],
    ["#7d1426", "#ff5f73"],
    ["#5f6773", "#b4bcc8"],
];

/// How many colours curves go through before they come again.
pub(crate) const COLOURS: usize = SERIES.len();

impl Ink {
    /// Name of the custom property that holds it on a page, and its colours in light and dark.
    fn entry(self) -> (String, [&'static str; 2]) {
        let (name, colours) = match self {
            Ink::Surface => ("surface", ["#ffffff", "#15181d"]),
            Ink::Text => ("text", ["#1a1f27", "#e9ecf1"]),
            Ink::Muted => ("muted", ["#586170", "#9ba5b4"]),
            Ink::Grid => ("grid", ["#e8ebf0", "#272d36"]),
            Ink::Axis => ("axis", ["#a9b1bd", "#515b69"]),
            Ink::Series(i) => return (format!("series-{}", i % COLOURS), SERIES[i % COLOURS]),
            Ink::Rgb(_) => ("", ["", ""]),
        };
        (name.to_string(), colours)
    }

    /// In light, as SVG writes it.
    pub fn light(self) -> String {
        match self {
            Ink::Rgb([r, g, b]) => format!("#{r:02x}{g:02x}{b:02x}"),
            ink => ink.entry().1[0].to_string(),
        }
    }

    /// As a reference to the page's custom property.
    pub fn on_page(self) -> String {
        match self {
            Ink::Rgb(_) => self.light(),
            ink => format!("var(--{})", ink.entry().0),
        }
    }

    /// In light, as numbers.
    pub fn rgb(self) -> Rgb {
        match self {
            Ink::Rgb(rgb) => rgb,
            ink => parse(ink.entry().1[0]),
        }
    }
}

/// The custom properties of a page, in light (0) or dark (1).
pub(crate) fn properties(dark: bool) -> String {
    let inks = [Ink::Surface, Ink::Text, Ink::Muted, Ink::Grid, Ink::Axis];
    let all = inks.into_iter().chain((0..COLOURS).map(Ink::Series));
    all.map(|ink| ink.entry()).map(|(name, colours)| format!("--{name}:{};", colours[usize::from(dark)])).collect()
}

fn parse(hex: &str) -> Rgb {
    let digit = |i: usize| hex.get(i..i + 2).and_then(|pair| u8::from_str_radix(pair, 16).ok()).unwrap_or(0);
    [digit(1), digit(3), digit(5)]
}

/// Dark blue to yellow: matplotlib's viridis, even in lightness.
const SEQUENTIAL: [&str; 9] =
    ["#440154", "#472d7b", "#3b528b", "#2c728e", "#21918c", "#28ae80", "#5ec962", "#addc30", "#fde725"];
/// Blue through near white to red, from ColorBrewer's RdBu.
const DIVERGING: [&str; 9] =
    ["#2166ac", "#4393c3", "#92c5de", "#d1e5f0", "#f7f7f7", "#fddbc7", "#f4a582", "#d6604d", "#b2182b"];

/// The colour at `part` (0 to 1) of a scale.
pub(crate) fn heat(part: f64, diverging: bool) -> Rgb {
    let stops = if diverging { &DIVERGING } else { &SEQUENTIAL };
    let place = part.clamp(0.0, 1.0) * (stops.len() - 1) as f64;
    let i = (place as usize).min(stops.len() - 2);
    let (a, b, t) = (parse(stops[i]), parse(stops[i + 1]), place - i as f64);
    std::array::from_fn(|c| (f64::from(a[c]) + t * (f64::from(b[c]) - f64::from(a[c]))).round() as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// From an sRGB value to light.
    fn linear(c: u8) -> f64 {
        match f64::from(c) / 255.0 {
            c if c <= 0.040_45 => c / 12.92,
            c => ((c + 0.055) / 1.055).powf(2.4),
        }
    }

    /// Contrast as WCAG 2 defines it.
    fn contrast(a: &str, b: &str) -> f64 {
        let luminance = |hex: &str| {
            let [r, g, b] = parse(hex).map(linear);
            0.2126 * r + 0.7152 * g + 0.0722 * b
        };
        let (a, b) = (luminance(a), luminance(b));
        (a.max(b) + 0.05) / (a.min(b) + 0.05)
    }

    #[test]
    fn everything_stands_out_from_its_background() {
        for theme in [0, 1] {
            let colour = |ink: Ink| ink.entry().1[theme];
            let against = |ink: Ink| contrast(colour(ink), colour(Ink::Surface));
            assert!(against(Ink::Text) >= 7.0);
            assert!(against(Ink::Muted) >= 4.5, "{}", against(Ink::Muted));
            for i in 0..COLOURS {
                // WCAG requires 3 : 1 for graphics that carry meaning.
                assert!(against(Ink::Series(i)) >= 3.0, "series {i}: {}", against(Ink::Series(i)));
            }
        }
    }

    /// The distance of two colours in CIELAB, ΔE of 1976.
    fn distance(a: &str, b: &str) -> f64 {
        let lab = |hex: &str| {
            let [r, g, b] = parse(hex).map(linear);
            let x = (0.4124 * r + 0.3576 * g + 0.1805 * b) / 0.950_47;
            let y = 0.2126 * r + 0.7152 * g + 0.0722 * b;
            let z = (0.0193 * r + 0.1192 * g + 0.9505 * b) / 1.088_83;
            let [x, y, z] = [x, y, z].map(|t: f64| if t > 0.008_856 { t.cbrt() } else { 7.787 * t + 16.0 / 116.0 });
            [116.0 * y - 16.0, 500.0 * (x - y), 200.0 * (y - z)]
        };
        lab(a).iter().zip(lab(b)).map(|(a, b)| (a - b).powi(2)).sum::<f64>().sqrt()
    }

    #[test]
    fn curves_have_colours_that_are_far_apart() {
        for theme in [0, 1] {
            for (a, one) in SERIES.iter().enumerate() {
                for (b, other) in SERIES[..a].iter().enumerate() {
                    // A ΔE of 2 is just noticeable side by side; thin lines need far more. Most plots have up to four curves.
                    let least = if a < 4 { 50.0 } else { 30.0 };
                    let apart = distance(one[theme], other[theme]);
                    assert!(apart >= least, "series {a} and {b} are {apart:.1} apart in theme {theme}");
                }
            }
        }
    }

    #[test]
    fn scales_begin_and_end_with_their_colours() {
        assert_eq!(heat(0.0, false), parse(SEQUENTIAL[0]));
        assert_eq!(heat(1.0, true), parse(DIVERGING[8]));
        assert_eq!(heat(0.5, true), parse(DIVERGING[4]));
    }
}
