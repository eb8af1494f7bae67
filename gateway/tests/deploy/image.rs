//! The image: what its recipe says.

use crate::{checker, python, repository};

#[test]
fn the_recipe_is_clean_in_the_eyes_of_hadolint() {
    let mut hadolint = checker("hadolint");
    hadolint.args(["--failure-threshold", "style"]).arg(repository("deploy/image/Dockerfile"));
    python::run("hadolint", &mut hadolint);
}
