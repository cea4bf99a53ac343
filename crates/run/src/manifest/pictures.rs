//! Grids of pictures: a line for each row of a table, a column for each state that its measure shows.

use super::TakenPicture;
use super::findings::Outcomes;
use bilevel_report::{Photograph, Photographs};

/// The grids of a group, by their titles.
pub(super) fn of(group: &str, all: &[Outcomes]) -> Vec<Photographs> {
    let mut grids: Vec<Photographs> = vec![];
    for outcomes in all {
        for picture in outcomes.pictures() {
            let title = format!("{}: {group}", picture.grid).trim_end_matches(": ").to_string();
            let at = grids.iter().position(|grid| grid.title == title).unwrap_or_else(|| {
                grids.push(Photographs { title, ..Photographs::default() });
                grids.len() - 1
            });
            put(&mut grids[at], picture, outcomes.name());
        }
    }
    grids
}

fn put(grid: &mut Photographs, picture: &TakenPicture, own: String) {
    let TakenPicture { row, column, caption, side, colours, levels, .. } = picture;
    let is_shared = !row.is_empty();
    let name = if is_shared { row.clone() } else { own };
    if !grid.columns.contains(column) {
        grid.columns.push(column.clone());
    }
    let photograph = Photograph { caption: caption.clone(), columns: *side, colours: *colours, levels: levels.clone() };
    match grid.rows.iter_mut().find(|(known, _)| *known == name) {
        // A line that all rows share is there already.
        Some(_) if is_shared => {}
        Some((_, line)) => line.push(photograph),
        None => grid.rows.push((name, vec![photograph])),
    }
}
