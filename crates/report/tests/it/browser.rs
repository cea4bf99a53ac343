//! A sample page in a real browser, wide and narrow, light and dark. Skipped where there is none, unless CI=true.

mod drive;
#[path = "../../examples/gallery.rs"]
mod gallery;

#[test]
fn a_page_reads_well_wide_and_narrow_in_light_and_dark() {
    let Some(browser) = drive::chromium() else { return };
    let folder = std::env::temp_dir().join(format!("report-browser-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let page = gallery::sample().html();
    std::fs::write(folder.join("report.html"), &page).unwrap();
    let windows = [(1280, 3900, false), (1280, 3900, true), (400, 4300, false), (400, 4300, true)];
    drive::check(&browser, &folder, &page, &windows);
    println!("screenshots are in {}", folder.display());
}
