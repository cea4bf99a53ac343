//! A family of lamps, drawn at random and seen from any direction, in place of the ShapeNet lamps of the paper.
//!
//! A lamp is three frusta, a flat base, a thin pole that may lean, and a shade. A ray o + t·d meets the side of a
//! frustum from a to b = a + h·w, whose radius is r + k·z at height z, where
//!
//!   |p + t·q|² = (r + k·(z₀ + t·d_w))²,   p, q the parts of o − a and d across w,   z₀, d_w those along w,
//!
//! and its two ends in planes. The nearest surface is lit by one lamp at infinity and some ambient light; the
//! background is white.

use super::views::{Camera, Scene};
use bilevel::Key;
use bilevel::graph::random::philox4x32;
use std::f64::consts::TAU;

type Point = [f64; 3];

/// How far cameras are from the middle of a lamp.
const DISTANCE: f64 = 4.0;
/// The horizontal angle of view, in radians: NeRF's own scenes have it.
const ANGLE: f64 = 0.691_111_2;
/// Every pixel is the mean of this many rays in each direction.
const RAYS: usize = 2;
/// The direction of the light.
const LIGHT: Point = [0.485, -0.485, 0.728];

fn dot(a: Point, b: Point) -> f64 {
    a[0] * b[0] + a[1] * b[1] + a[2] * b[2]
}

/// a + s·b.
fn along(a: Point, s: f64, b: Point) -> Point {
    [a[0] + s * b[0], a[1] + s * b[1], a[2] + s * b[2]]
}

fn unit(a: Point) -> Point {
    along([0.0; 3], dot(a, a).sqrt().recip(), a)
}

fn cross(a: Point, b: Point) -> Point {
    [a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]]
}

/// A truncated cone; with equal radii a cylinder.
struct Frustum {
    from: Point,
    axis: Point,
    height: f64,
    /// At its two ends.
    radii: [f64; 2],
    colour: Point,
}

impl Frustum {
    fn new(from: Point, to: Point, radii: [f64; 2], colour: Point) -> Self {
        let way = along(to, -1.0, from);
        Frustum { from, axis: unit(way), height: dot(way, way).sqrt(), radii, colour }
    }

    /// The first intersection with a ray, and the normal there.
    fn met(&self, origin: Point, direction: Point) -> Option<(f64, Point)> {
        let Frustum { axis, height, radii: [r, end], .. } = *self;
        let k = (end - r) / height;
        let to = along(origin, -1.0, self.from);
        let (z, dz) = (dot(to, axis), dot(direction, axis));
        let (p, q) = (along(to, -z, axis), along(direction, -dz, axis));
        let mut best: Option<(f64, Point)> = None;
        let mut keep = |t: f64, normal: Point| {
            if t > 0.0 && best.is_none_or(|(least, _)| t < least) {
                best = Some((t, normal));
            }
        };
        let (a, b, c) =
            (dot(q, q) - (k * dz).powi(2), dot(p, q) - k * dz * (r + k * z), dot(p, p) - (r + k * z).powi(2));
        let inside = b * b - a * c;
        if inside >= 0.0 && a != 0.0 {
            for root in [-inside.sqrt(), inside.sqrt()] {
                let t = (root - b) / a;
                let place = z + t * dz;
                if (0.0..=height).contains(&place) && r + k * place >= 0.0 {
                    keep(t, unit(along(unit(along(p, t, q)), -k, axis)));
                }
            }
        }
        if dz != 0.0 {
            for (place, radius, side) in [(0.0, r, -1.0), (height, end, 1.0)] {
                let t = (place - z) / dz;
                let across = along(p, t, q);
                if dot(across, across) <= radius * radius {
                    keep(t, along([0.0; 3], side, axis));
                }
            }
        }
        best
    }
}

/// A lamp.
pub(super) struct Lamp([Frustum; 3]);

/// Uniform numbers, in order.
struct Draws {
    key: [u32; 2],
    next: u32,
}

impl Draws {
    fn of(seed: u64, lamp: usize) -> Self {
        Draws { key: Key::from_seed(seed).fold_in(lamp as u32).words(), next: 0 }
    }

    fn between(&mut self, low: f64, high: f64) -> f64 {
        self.next += 1;
        let word = philox4x32([self.next, 0, 0, 0], self.key)[0];
        low + (high - low) * f64::from(word) / 2f64.powi(32)
    }

    fn colour(&mut self, low: f64, high: f64) -> Point {
        [0; 3].map(|_| self.between(low, high))
    }
}

impl Lamp {
    fn draw(d: &mut Draws) -> Self {
        let floor = -1.1;
        let thick = d.between(0.08, 0.2);
        let base = Frustum::new(
            [0.0, 0.0, floor],
            [0.0, 0.0, floor + thick],
            [d.between(0.35, 0.6), d.between(0.2, 0.35)],
            d.colour(0.1, 0.7),
        );
        let (lean, towards) = (d.between(0.0, 0.4), d.between(0.0, TAU));
        let top = [lean * towards.cos(), lean * towards.sin(), d.between(0.1, 0.4)];
        let pole = Frustum::new([0.0, 0.0, floor + thick], top, [d.between(0.04, 0.09); 2], d.colour(0.1, 0.7));
        let low = along(top, -d.between(0.0, 0.25), [0.0, 0.0, 1.0]);
        let high = along(low, d.between(0.5, 0.8), [0.0, 0.0, 1.0]);
        let radii = [d.between(0.45, 0.75), d.between(0.2, 0.45)];
        Lamp([base, pole, Frustum::new(low, high, radii, d.colour(0.3, 0.95))])
    }

    /// The colour along a ray.
    fn seen(&self, origin: Point, direction: Point) -> Point {
        let hits =
            self.0.iter().filter_map(|part| part.met(origin, direction).map(|(t, normal)| (t, normal, part.colour)));
        match hits.min_by(|a, b| a.0.total_cmp(&b.0)) {
            Some((_, normal, colour)) => along([0.0; 3], 0.45 + 0.55 * dot(normal, LIGHT).max(0.0), colour),
            None => [1.0; 3],
        }
    }
}

/// A camera on a sphere around the middle, the top of its pictures up.
fn camera(d: &mut Draws) -> Camera {
    let (around, above) = (d.between(0.0, TAU), d.between(-0.1, 0.9));
    let back = [around.cos() * above.cos(), around.sin() * above.cos(), above.sin()];
    let right = unit(cross([0.0, 0.0, 1.0], back));
    let up = cross(back, right);
    Camera {
        rotation: [0, 1, 2].map(|axis| [right[axis], up[axis], back[axis]]),
        origin: along([0.0; 3], DISTANCE, back),
        slope: (ANGLE / 2.0).tan(),
    }
}

/// The lamp of a number with this many views of `side`² pixels.
pub(super) fn scene(seed: u64, lamp: usize, views: usize, side: usize) -> Scene {
    let mut draws = Draws::of(seed, lamp);
    let lamp = Lamp::draw(&mut draws);
    let cameras: Vec<Camera> = (0..views).map(|_| camera(&mut draws)).collect();
    let mut colours = Vec::with_capacity(views * side * side * 3);
    for camera in &cameras {
        for pixel in 0..side * side {
            let mut sum = [0.0; 3];
            for ray in 0..RAYS * RAYS {
                let within = |place: usize, part: usize| place as f64 + (part as f64 + 0.5) / RAYS as f64;
                let place = [within(pixel % side, ray % RAYS), within(pixel / side, ray / RAYS)];
                let direction = camera.direction(place.map(|place| 2.0 * place / side as f64 - 1.0));
                sum = along(sum, 1.0, lamp.seen(camera.origin, direction));
            }
            colours.extend(sum.map(|sum| (sum / (RAYS * RAYS) as f64) as f32));
        }
    }
    Scene { cameras, colours }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ray_meets_the_side_and_the_end_of_a_cylinder_where_it_should() {
        let cylinder = Frustum::new([0.0; 3], [0.0, 0.0, 2.0], [0.5; 2], [0.0; 3]);
        let (t, normal) = cylinder.met([4.0, 0.0, 1.0], [-1.0, 0.0, 0.0]).unwrap();
        assert!((t - 3.5).abs() < 1e-12 && (normal[0] - 1.0).abs() < 1e-12);
        let (t, normal) = cylinder.met([0.1, 0.1, 5.0], [0.0, 0.0, -1.0]).unwrap();
        assert!((t - 3.0).abs() < 1e-12 && normal == [0.0, 0.0, 1.0]);
        assert!(cylinder.met([4.0, 0.0, 2.5], [-1.0, 0.0, 0.0]).is_none());
        assert!(cylinder.met([4.0, 0.0, 1.0], [1.0, 0.0, 0.0]).is_none(), "it lies behind");
    }

    #[test]
    fn the_normal_of_a_cone_leans_by_its_slope() {
        let cone = Frustum::new([0.0; 3], [0.0, 0.0, 1.0], [1.0, 0.0], [0.0; 3]);
        let (t, normal) = cone.met([3.0, 0.0, 0.5], [-1.0, 0.0, 0.0]).unwrap();
        assert!((t - 2.5).abs() < 1e-12);
        assert!((normal[0] - 0.5f64.sqrt()).abs() < 1e-12 && (normal[2] - 0.5f64.sqrt()).abs() < 1e-12, "{normal:?}");
    }

    #[test]
    fn lamps_differ_from_each_other_and_fill_a_part_of_every_view() {
        let [one, other] = [0, 1].map(|lamp| scene(7, lamp, 3, 16));
        assert_eq!(one.colours, scene(7, 0, 3, 16).colours);
        assert_ne!(one.colours, other.colours);
        for view in one.colours.chunks(16 * 16 * 3).chain(other.colours.chunks(16 * 16 * 3)) {
            let white = view.chunks(3).filter(|pixel| pixel.iter().all(|c| *c == 1.0)).count();
            assert!((16 * 16 / 3..16 * 16).contains(&white), "{white} of 256 pixels are white");
            assert!(view.iter().all(|c| (0.0..=1.0).contains(c)));
        }
    }
}
