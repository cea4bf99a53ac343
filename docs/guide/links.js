// Links to files outside the book: beside it on a disk, otherwise in the repository. mdBook renames all Markdown files to HTML.
for (const link of document.querySelectorAll('a[href^="../../../"]')) {
    const path = link.getAttribute("href").slice("../../../".length).replace(/\.html(?=#|$)/, ".md");
    const root = location.protocol === "file:" ? "../../../" : "https://github.com/bilevel-rs/bilevel/blob/main/";
    link.href = root + path;
}
