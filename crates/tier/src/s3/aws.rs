//! Names of hosts at AWS.

/// Where AWS answers for buckets whose region nobody named.
pub(super) const FIRST_REGION: &str = "us-east-1";

/// Of a service in a region.
pub(super) fn host(service: &str, region: &str) -> String {
    let domain = if region.starts_with("cn-") { "amazonaws.com.cn" } else { "amazonaws.com" };
    format!("{service}.{region}.{domain}")
}
