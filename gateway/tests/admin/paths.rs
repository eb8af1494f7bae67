//! Paths, methods and queries: what is not known is refused, and said to be.

use crate::access::paths;
use crate::desk::{Ask, FULL, house};

#[tokio::test]
async fn m07_no_path_climbs_in_whatever_spelling() {
    let house = house().await;
    for path in [
        "/admin/../v1/members",
        "/admin/v1/../v1/members",
        "/admin/v1/%2e%2e/members",
        "/admin/v1/%2E./members",
        "/admin/v1/..%2f..%2fetc%2fpasswd",
        "/ui/..%2f..%2fetc/passwd",
        "/..%2f..%2fetc/passwd",
        "/%2e%2e/%2e%2e/etc/passwd",
        "/admin/v1/endpoints/demo/..%2fa",
        "/admin/v1/endpoints/..%2f..%2f/explain",
        "/admin/v1//members",
        "/admin/v1/members/",
        "/admin/v1/members%00",
        "/admin/v1/members%0d%0aset-cookie:x",
        "/admin/v1/%c0%ae%c0%ae/members",
        "/admin/v1",
        "/admin",
        "/etc/passwd",
    ] {
        for ask in [Ask::new("GET", path), Ask::new("GET", path).token(FULL)] {
            assert_eq!(ask.send(&house).await.refused(), (404, "not_found".to_owned()), "{path}");
        }
    }
    // Decoded once only, and then compared whole.
    let twice = Ask::new("GET", "/admin/v1/%252e%252e/members").token(FULL);
    assert_eq!(twice.send(&house).await.status, 404);
    let encoded = Ask::new("GET", "/admin/v1/endpoints/d%65mo/%61").token(FULL);
    assert_eq!(encoded.send(&house).await.json()["endpoint"], "demo/a");
}

#[tokio::test]
async fn a_path_tells_its_methods() {
    let house = house().await;
    for path in paths(&house, "get").await {
        let allowed = "GET, HEAD, OPTIONS";
        for method in ["POST", "PUT", "DELETE", "PATCH", "BREW"] {
            let told = Ask::new(method, &path).token(FULL).send(&house).await;
            assert_eq!(told.refused().0, 405, "{method} {path}");
            assert_eq!(told.header("allow"), allowed, "{method} {path}");
        }
        let told = Ask::new("OPTIONS", &path).token(FULL).send(&house).await;
        assert_eq!((told.status, told.header("allow"), told.text.as_str()), (204, allowed, ""));
        let told = Ask::new("HEAD", &path).token(FULL).send(&house).await;
        assert_eq!((told.status, told.text.as_str()), (200, ""), "{path}");
    }
    for path in paths(&house, "post").await {
        let told = Ask::new("GET", &path).token(FULL).send(&house).await;
        assert_eq!((told.refused().0, told.header("allow")), (405, "OPTIONS, POST"), "{path}");
    }
}

#[tokio::test]
async fn what_a_query_says_and_nobody_knows_is_refused() {
    let house = house().await;
    for path in paths(&house, "get").await {
        let told = Ask::new("GET", &format!("{path}?no-such=1")).token(FULL).send(&house).await;
        assert_eq!(told.refused(), (400, "invalid_query".to_owned()), "{path}");
    }
    for query in ["since=x", "since=1", "since=0&since=0", "until=then", "since=%ff"] {
        let told = Ask::look(&format!("events?{query}")).send(&house).await;
        assert_eq!(told.refused(), (400, "invalid_query".to_owned()), "{query}");
    }
}

#[tokio::test]
async fn every_answer_carries_the_same_care() {
    let house = house().await;
    let asks = [
        Ask::look("members"),
        Ask::look("no-such-thing"),
        Ask::new("GET", "/metrics"),
        Ask::new("GET", "/nowhere"),
        Ask::new("GET", "/admin/v1/members"),
        Ask::new("OPTIONS", "/healthz"),
        Ask::look("events?since=0&until=now"),
    ];
    for ask in asks {
        let told = ask.clone().header("x-request-id", "of-mine.7").send(&house).await;
        assert_eq!(told.header("x-content-type-options"), "nosniff");
        assert_eq!(told.header("cache-control"), "no-store");
        assert_eq!(told.header("x-request-id"), "of-mine.7");
        let own = ask.header("x-request-id", "a b<script>").send(&house).await;
        assert!(own.header("x-request-id").starts_with("req-"), "{:?}", own.headers);
    }
}
