"""The fleet as a file: export it, plan a change of it, apply the change."""

from __future__ import annotations

from adapters.http.api.fleet import responses
from adapters.http.api.fleet.document_to_domain import to_fleet_request
from adapters.http.api.fleet.schemas import FleetApplyRequest, FleetExportQueryParameters
from adapters.http.core.caller_authentication import AllowedCallers, current_session
from adapters.http.core.operation import ApiBlueprint
from domain.fleet_file.service import FleetFileService

_ERRORS = {
    400: "UNKNOWN_METRIC COMMAND_NEEDS_APPROVAL UNKNOWN_COMMAND INVALID_PARAMS",
    403: "ROLE_REQUIRED OPERATION_NOT_ALLOWED GRANT_MISSING COMMAND_NOT_GRANTED",
    409: "CONFLICT EXTERNAL_ID_TAKEN REQUEST_PENDING PROJECT_EMPTY PROJECT_NOT_EMPTY DEFAULT_PROJECT DEVICE_TYPE_IN_USE",
}


def fleet_blueprint(fleet: FleetFileService) -> ApiBlueprint:
    bp = ApiBlueprint("fleet", "Fleet")

    @bp.operation("GET /fleet", AllowedCallers.SESSION, "Export the fleet", errors={409: "FLEET_TOO_LARGE"})
    async def export_fleet(query: FleetExportQueryParameters) -> responses.FleetResponse:
        """The account as a document, without what you may not read. Planned again, it changes nothing."""
        exported = await fleet.export(current_session(), query.project)
        return responses.fleet_response(exported, query.project, fleet.defaults)

    @bp.operation("POST /fleet/plan", AllowedCallers.SESSION, "Plan a change of the fleet", errors=_ERRORS)
    async def plan_fleet(body: FleetApplyRequest) -> responses.FleetPlanResponse:
        """What an apply of this document would do, or the error that it would answer with. Nothing is changed."""
        return responses.plan_response(await fleet.plan(current_session(), to_fleet_request(body)))

    @bp.operation("POST /fleet/apply", AllowedCallers.SESSION, "Apply a fleet", errors=_ERRORS, idempotent=True)
    async def apply_fleet(body: FleetApplyRequest) -> responses.FleetApplyResponse:
        """Makes and changes what the document names, in one transaction: all of it or nothing. Each change needs what its single
        call needs. Repeat a request whose answer was lost with its `Idempotency-Key`: secrets are in the first answer only."""
        return responses.apply_response(await fleet.apply(current_session(), to_fleet_request(body)))

    return bp
