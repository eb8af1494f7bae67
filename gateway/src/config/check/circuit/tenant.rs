//! The scope of a breaker: one for the endpoint, or one for each tenant that uses it.

use crate::config::TenantScope;
use crate::config::check::choice;
use crate::config::check::process::header_name;
use crate::config::error::ConfigError;
use crate::config::file::{CircuitSection, TenantSection};
use crate::config::scalar::{Refusal, whole};
use crate::config::section::Section;

/// Tenants remembered for one endpoint, unless told otherwise.
const TENANTS: usize = 1_000;
/// The most that can be remembered for one endpoint.
const TENANTS_MAX: usize = 10_000;
/// The most that can be remembered for all endpoints together. One takes about two kilobytes, its name
/// and its places in the book included, so that this is some 200 MB.
pub(in crate::config::check) const TENANTS_SUM_MAX: usize = 100_000;
/// Headers that hold secrets; a tenant's name is shown to operators.
const SECRET: [&str; 5] =
    ["authorization", "proxy-authorization", "x-api-key", "api-key", "cookie"];
/// Whether each tenant has a breaker of its own.
const SCOPES: [(&str, bool); 2] = [("endpoint", false), ("endpoint+tenant", true)];

/// Puts what `raw` says on top of `inherited`.
///
/// # Errors
/// A setting is refused, or one says nothing without another.
pub(super) fn overlay(
    circuit: &Section<'_>,
    raw: &CircuitSection,
    inherited: Option<&TenantScope>,
) -> Result<Option<TenantScope>, ConfigError> {
    let is_on =
        circuit.or("scope", &raw.scope, inherited.is_some(), |text| choice(text, &SCOPES))?;
    if !is_on {
        return match raw.tenant.place() {
            None => Ok(None),
            Some(place) => Err(circuit.refuse(
                "tenant",
                Some(place),
                "scope: endpoint has no use for it",
                "remove it or write scope: endpoint+tenant",
            )),
        };
    }
    let none = TenantSection::default();
    let given = raw.tenant.get().unwrap_or(&none);
    let section = circuit.child("tenant", &raw.tenant);
    let named = section.optional("header", &given.header, tenant_header)?;
    let Some(header) = named.or_else(|| inherited.map(|scope| scope.header.clone())) else {
        let cure = "write the header that names the tenant, for example x-tenant-id";
        return Err(section.refuse("header", None, "is missing", cure));
    };
    let most = inherited.map_or(TENANTS, |scope| scope.most);
    let most = section.or("max", &given.max, most, |text| whole(text, 1..=TENANTS_MAX))?;
    Ok(Some(TenantScope { header, most }))
}

fn tenant_header(text: &str) -> Result<String, Refusal> {
    let name = header_name(text)?;
    if SECRET.contains(&name.as_str()) {
        let cure = "use a header without secrets, for example x-tenant-id";
        return Err(Refusal::new("holds a credential, and tenants are shown by name", cure));
    }
    Ok(name)
}
