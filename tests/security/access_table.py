"""Who may call what: the expected status of every operation of `/openapi.json` for every kind of caller.

nobody    no credentials, or ones that are malformed, unknown, expired, disabled or of a removed member
Member+   a Member whose membership is granted every command on the project; Viewer+ likewise
key       an API key without a grant; keyR with a READ grant for every command on the project, keyW with a WRITE one
other     the Owner of another account who knows this account's ids

`#word` is another way to call the operation: `#owner` aims at an Owner, `#promote` makes one, `#query` sends a QUERY command and
`#approval` one that needs approval. A 400 means that permission was given and the input is wrong (a wrong code, a key of another account).
An operation without a row, and a row without an operation, fail the test.
"""

from __future__ import annotations

TABLE = """
                                                              nobody Owner Admin Member Viewer Member+ Viewer+ key keyR keyW other
POST /auth/login                                                 200   200   200    200    200     200     200 200  200  200   200
POST /auth/refresh                                               200   200   200    200    200     200     200 200  200  200   200
POST /auth/logout                                                200   200   200    200    200     200     200 200  200  200   200
POST /auth/unlock/request                                        200   200   200    200    200     200     200 200  200  200   200
POST /auth/unlock                                                400   400   400    400    400     400     400 400  400  400   400
GET /auth/me                                                     401   200   200    200    200     200     200 403  403  403   200
GET /auth/notifications                                          401   200   200    200    200     200     200 403  403  403   200
PUT /auth/notifications                                          401   200   200    200    200     200     200 403  403  403   200
GET /auth/notifications/push-key                                 401   200   200    200    200     200     200 403  403  403   200
GET /auth/notifications/channels                                 401   200   200    200    200     200     200 403  403  403   200
POST /auth/notifications/channels                                401   201   201    201    201     201     201 403  403  403   201
GET /auth/notifications/channels/{channelId}                     401   404   404    404    404     404     404 403  403  403   404
DELETE /auth/notifications/channels/{channelId}                  401   404   404    404    404     404     404 403  403  403   404
POST /auth/notifications/channels/{channelId}/confirm            401   404   404    404    404     404     404 403  403  403   404
POST /auth/notifications/channels/{channelId}/test               401   404   404    404    404     404     404 403  403  403   404
POST /approval-links/preview                                     400   400   400    400    400     400     400 400  400  400   400
POST /approval-links/passkey-options                             400   400   400    400    400     400     400 400  400  400   400
POST /approval-links/approve                                     400   400   400    400    400     400     400 400  400  400   400
POST /approval-links/deny                                        400   400   400    400    400     400     400 400  400  400   400
POST /auth/password/request-otp                                  401   200   200    403    403     403     403 403  403  403   200
POST /auth/change-password                                       401   400   400    403    403     403     403 403  403  403   400
POST /auth/password/change                                       401   403   403    403    403     403     403 403  403  403   403
GET /auth/sessions                                               401   200   200    200    200     200     200 403  403  403   200
DELETE /auth/sessions                                            401   200   200    200    200     200     200 403  403  403   200
GET /auth/sessions/{sessionId}                                   401   404   404    404    404     404     404 403  403  403   404
DELETE /auth/sessions/{sessionId}                                401   404   404    404    404     404     404 403  403  403   404
POST /auth/login/second-factor                                   400   400   400    400    400     400     400 400  400  400   400
POST /auth/step-up                                               401   403   403    403    403     403     403 403  403  403   403
GET /auth/second-factor                                          401   200   200    200    200     200     200 403  403  403   200
POST /auth/second-factor/totp                                    401   200   200    200    200     200     200 403  403  403   200
POST /auth/second-factor/totp/confirm                            401   400   400    400    400     400     400 403  403  403   400
POST /auth/second-factor/recovery-codes                          401   404   404    404    404     404     404 403  403  403   404
DELETE /auth/second-factor                                       401   404   404    404    404     404     404 403  403  403   404
DELETE /auth/second-factor/totp                                  401   404   404    404    404     404     404 403  403  403   404
POST /auth/login/passkey/options                                 200   200   200    200    200     200     200 200  200  200   200
POST /auth/login/passkey                                         400   400   400    400    400     400     400 400  400  400   400
POST /auth/step-up/passkey-options                               401   404   404    404    404     404     404 403  403  403   404
GET /auth/passkeys                                               401   200   200    200    200     200     200 403  403  403   200
POST /auth/passkeys/options                                      401   200   200    200    200     200     200 403  403  403   200
POST /auth/passkeys                                              401   400   400    400    400     400     400 403  403  403   400
GET /auth/passkeys/{passkeyId}                                   401   404   404    404    404     404     404 403  403  403   404
DELETE /auth/passkeys/{passkeyId}                                401   404   404    404    404     404     404 403  403  403   404
GET /service-sessions                                            401   200   200    403    403     403     403 403  403  403   200
POST /service-sessions                                           401   201   201    403    403     403     403 403  403  403   201
GET /service-sessions/{sessionId}                                401   404   404    403    403     403     403 403  403  403   404
DELETE /service-sessions/{sessionId}                             401   404   404    403    403     403     403 403  403  403   404
GET /members                                                     401   200   200    200    200     200     200 403  403  403   200
POST /members                                                    401   201   201    403    403     403     403 403  403  403   201
POST /members #owner                                             401   201   403    403    403     403     403 403  403  403   201
GET /members/{membershipId}                                      401   200   200    200    200     200     200 403  403  403   404
PATCH /members/{membershipId}                                    401   200   200    403    403     403     403 403  403  403   404
PATCH /members/{membershipId} #promote                           401   200   403    403    403     403     403 403  403  403   404
PATCH /members/{membershipId} #owner                             401   200   403    403    403     403     403 403  403  403   404
DELETE /members/{membershipId}                                   401   200   200    403    403     403     403 403  403  403   404
DELETE /members/{membershipId} #owner                            401   200   403    403    403     403     403 403  403  403   404
GET /invitations                                                 401   200   200    403    403     403     403 403  403  403   200
POST /invitations                                                401   201   201    403    403     403     403 403  403  403   201
POST /invitations #owner                                         401   201   403    403    403     403     403 403  403  403   201
GET /invitations/{invitationId}                                  401   200   200    403    403     403     403 403  403  403   404
POST /invitations/{invitationId}/resend                          401   200   200    403    403     403     403 403  403  403   404
DELETE /invitations/{invitationId}                               401   200   200    403    403     403     403 403  403  403   404
POST /invitations/preview                                        400   400   400    400    400     400     400 400  400  400   400
POST /invitations/accept                                         400   400   400    400    400     400     400 400  400  400   400
GET /projects                                                    401   200   200    200    200     200     200 403  403  403   200
POST /projects                                                   401   201   201    403    403     403     403 403  403  403   201
GET /projects/{projectId}                                        401   200   200    200    200     200     200 403  403  403   404
PATCH /projects/{projectId}                                      401   200   200    403    403     403     403 403  403  403   404
DELETE /projects/{projectId}                                     401   200   200    403    403     403     403 403  403  403   404
GET /keys                                                        401   200   200    200    200     200     200 403  403  403   200
POST /keys                                                       401   201   201    403    403     403     403 403  403  403   201
GET /keys/{keyId}                                                401   200   200    200    200     200     200 403  403  403   404
PATCH /keys/{keyId}                                              401   200   200    403    403     403     403 403  403  403   404
POST /keys/{keyId}/rotate                                        401   200   200    403    403     403     403 403  403  403   404
DELETE /keys/{keyId}                                             401   200   200    403    403     403     403 403  403  403   404
GET /keys/{keyId}/grants                                         401   200   200    200    200     200     200 403  403  403   404
GET /catalog/boards                                              200   200   200    200    200     200     200 200  200  200   200
GET /catalog/apps                                                200   200   200    200    200     200     200 200  200  200   200
GET /network                                                     401   200   200    200    200     200     200 403  403  403   200
GET /cluster                                                     401   200   200    403    403     403     403 403  403  403   200
GET /devices                                                     401   200   200    200    200     200     200 200  200  200   200
GET /devices/summary                                             401   200   200    200    200     200     200 403  403  403   200
GET /fleet                                                       401   200   200    200    200     200     200 403  403  403   200
POST /fleet/plan                                                 401   200   200    200    403     200     403 403  403  403   200
POST /fleet/apply                                                401   200   200    200    403     200     403 403  403  403   200
POST /devices/register/bulk                                      401   200   200    200    403     200     403 403  403  403   200
POST /devices/register                                           401   201   201    201    403     201     403 403  403  403   201
GET /devices/{deviceId}                                          401   200   200    200    200     200     200 403  403  403   404
PUT /devices/{deviceId}                                          401   200   200    200    403     200     403 403  403  403   404
DELETE /devices/{deviceId}                                       401   200   200    200    403     200     403 403  403  403   404
PATCH /devices/{deviceId}/toggle                                 401   200   200    200    403     200     403 403  403  403   404
POST /devices/{deviceId}/revoke                                  401   200   200    200    403     200     403 403  403  403   404
POST /devices/{deviceId}/credentials                             401   200   200    200    403     200     403 403  403  403   404
POST /devices/{deviceId}/credentials/reveal                      401   200   200    200    403     200     403 403  403  403   404
GET /devices/{deviceId}/config                                   401   200   200    200    200     200     200 403  403  403   404
GET /devices/{deviceId}/firmware                                 401   200   200    200    200     200     200 403  403  403   404
GET /device-types                                                401   200   200    200    200     200     200 403  403  403   200
POST /device-types                                               401   201   201    403    403     403     403 403  403  403   201
GET /device-types/{deviceTypeId}                                 401   200   200    200    200     200     200 403  403  403   404
PATCH /device-types/{deviceTypeId}                               401   200   200    403    403     403     403 403  403  403   404
DELETE /device-types/{deviceTypeId}                              401   200   200    403    403     403     403 403  403  403   404
POST /devices/{deviceId}/command                                 401   200   200    403    403     200     403 403  403  200   404
POST /devices/{deviceId}/command #approval                       401   200   202    403    403     202     403 403  403  202   404
POST /devices/{deviceId}/command #query                          401   200   200    403    403     200     200 403  200  200   404
POST /devices/{deviceId}/command/on                              401   200   200    403    403     200     403 403  403  200   404
POST /devices/{deviceId}/command/off                             401   200   200    403    403     200     403 403  403  200   404
GET /devices/{deviceId}/commands                                 401   200   200    200    200     200     200 403  200  200   404
POST /devices/{deviceId}/commands                                401   201   201    201    403     201     403 403  403  403   404
GET /devices/{deviceId}/commands/{commandId}                     401   200   200    200    200     200     200 403  403  403   404
PATCH /devices/{deviceId}/commands/{commandId}                   401   200   200    403    403     403     403 403  403  403   404
DELETE /devices/{deviceId}/commands/{commandId}                  401   200   200    403    403     403     403 403  403  403   404
GET /devices/{deviceId}/executions                               401   200   200    200    200     200     200 403  200  200   404
GET /devices/{deviceId}/executions/{executionId}                 401   200   200    200    200     200     200 403  200  200   404
POST /devices/{deviceId}/executions/cancel                       401   200   200    200    403     200     403 403  403  403   404
POST /devices/{deviceId}/executions/{executionId}/cancel         401   200   200    403    403     200     200 403  403  403   404
GET /devices/{deviceId}/schedules                                401   200   200    200    200     200     200 403  403  403   404
POST /devices/{deviceId}/schedules                               401   201   201    403    403     201     403 403  403  403   404
PUT /devices/{deviceId}/schedules                                401   200   200    403    403     200     403 403  403  403   404
GET /devices/{deviceId}/schedules/history                        401   200   200    200    200     200     200 403  403  403   404
GET /schedules/occurrences                                       401   200   200    200    200     200     200 403  403  403   200
GET /devices/{deviceId}/schedules/context                        401   200   200    200    200     200     200 403  403  403   404
GET /devices/{deviceId}/schedules/{slot}                         401   200   200    200    200     200     200 403  403  403   404
PUT /devices/{deviceId}/schedules/{slot}                         401   200   200    403    403     200     403 403  403  403   404
DELETE /devices/{deviceId}/schedules/{slot}                      401   200   200    200    403     200     403 403  403  403   404
GET /devices/{deviceId}/rules                                    401   200   200    200    200     200     200 403  403  403   404
POST /devices/{deviceId}/rules                                   401   201   201    403    403     201     403 403  403  403   404
POST /devices/{deviceId}/metrics                                 401   200   200    200    403     200     403 403  403  403   404
GET /devices/{deviceId}/rules/context                            401   200   200    200    200     200     200 403  403  403   404
GET /devices/{deviceId}/rules/{ruleId}                           401   200   200    200    200     200     200 403  403  403   404
PATCH /devices/{deviceId}/rules/{ruleId}                         401   200   200    403    403     200     403 403  403  403   404
DELETE /devices/{deviceId}/rules/{ruleId}                        401   200   200    200    403     200     403 403  403  403   404
POST /devices/{deviceId}/rules/{ruleId}/test                     401   200   200    200    200     200     200 403  403  403   404
POST /devices/{deviceId}/rules/test                              401   200   200    200    200     200     200 403  403  403   404
GET /provisioning-codes                                          401   200   200    200    200     200     200 403  403  403   200
POST /provisioning-codes                                         401   201   201    403    403     403     403 403  403  403   201
GET /provisioning-codes/{codeId}                                 401   200   200    200    200     200     200 403  403  403   404
DELETE /provisioning-codes/{codeId}                              401   200   200    403    403     403     403 403  403  403   404
GET /provisioning-claims                                         401   200   200    200    200     200     200 403  403  403   200
GET /provisioning-claims/{claimId}                               401   200   200    200    200     200     200 403  403  403   404
POST /provisioning-claims/{claimId}/approve                      401   200   200    403    403     403     403 403  403  403   404
POST /provisioning-claims/{claimId}/deny                         401   200   200    403    403     403     403 403  403  403   404
DELETE /provisioning-claims/{claimId}                            401   200   200    403    403     403     403 403  403  403   404
POST /provisioning/claim                                         202   202   202    202    202     202     202 202  202  202   202
GET /groups                                                      401   200   200    200    200     200     200 200  200  200   200
GET /groups/{groupId}                                            401   200   200    200    200     200     200 404  200  200   404
POST /groups                                                     401   201   201    403    403     403     403 403  403  403   201
PATCH /groups/{groupId}                                          401   200   200    403    403     403     403 403  403  403   404
DELETE /groups/{groupId}                                         401   200   200    403    403     403     403 403  403  403   404
PATCH /groups/{groupId}/devices                                  401   200   200    403    403     403     403 403  403  403   404
POST /groups/{groupId}/command                                   401   200   200    200    200     200     200 404  200  200   404
POST /groups/{groupId}/command/preview                           401   200   200    200    200     200     200 404  200  200   404
POST /groups/{groupId}/schedules                                 401   201   201    201    403     201     403 403  403  403   404
DELETE /groups/{groupId}/schedules/{slot}                        401   200   200    200    403     200     403 403  403  403   404
POST /groups/{groupId}/rules                                     401   201   201    201    403     201     403 403  403  403   404
GET /groups/{groupId}/grants                                     401   200   200    403    403     403     403 403  403  403   404
POST /groups/{groupId}/grants                                    401   201   201    403    403     403     403 403  403  403   404
GET /groups/{groupId}/grants/{grantId}                           401   200   200    403    403     403     403 403  403  403   404
PATCH /groups/{groupId}/grants/{grantId}                         401   200   200    403    403     403     403 403  403  403   404
DELETE /groups/{groupId}/grants/{grantId}                        401   200   200    403    403     403     403 403  403  403   404
GET /devices/{deviceId}/grants                                   401   200   200    403    403     403     403 403  403  403   404
POST /devices/{deviceId}/grants                                  401   201   201    403    403     403     403 403  403  403   404
GET /devices/{deviceId}/access                                   401   200   200    200    200     200     200 200  200  200   404
GET /devices/{deviceId}/grants/{grantId}                         401   200   200    403    403     403     403 403  403  403   404
PATCH /devices/{deviceId}/grants/{grantId}                       401   200   200    403    403     403     403 403  403  403   404
DELETE /devices/{deviceId}/grants/{grantId}                      401   200   200    403    403     403     403 403  403  403   404
GET /approvals                                                   401   200   200    200    200     200     200 403  403  403   200
GET /devices/{deviceId}/approvals                                401   200   200    200    200     200     200 403  403  403   404
GET /devices/{deviceId}/approvals/{approvalId}                   401   200   200    200    200     200     200 404  404  404   404
POST /devices/{deviceId}/approvals/{approvalId}/approve          401   200   200    403    403     403     403 403  403  403   404
POST /devices/{deviceId}/approvals/{approvalId}/deny             401   200   200    403    403     403     403 403  403  403   404
POST /devices/{deviceId}/approvals/{approvalId}/withdraw         401   403   403    403    403     403     403 404  404  404   404
GET /devices/{deviceId}/telemetry                                401   200   200    200    200     200     200 403  200  200   404
GET /telemetry/series?deviceId={deviceId}                        401   200   200    200    200     200     200 403  200  200   404
GET /devices/{deviceId}/telemetry/latest                         401   200   200    200    200     200     200 403  200  200   404
GET /devices/{deviceId}/telemetry/export                         401   200   200    200    200     200     200 403  200  200   404
GET /events                                                      401   200   200    200    200     200     200 403  403  403   200
GET /events/{eventId}                                            401   200   200    200    200     200     200 403  403  403   404
GET /events/export                                               401   200   200    403    403     403     403 403  403  403   200
GET /devices/{deviceId}/events                                   401   200   200    200    200     200     200 403  403  403   404
GET /webhooks                                                    401   200   200    200    200     200     200 403  403  403   200
POST /webhooks                                                   401   201   201    403    403     403     403 403  403  403   400
GET /webhooks/{webhookId}                                        401   200   200    200    200     200     200 403  403  403   404
PATCH /webhooks/{webhookId}                                      401   200   200    403    403     403     403 403  403  403   404
DELETE /webhooks/{webhookId}                                     401   200   200    403    403     403     403 403  403  403   404
POST /webhooks/{webhookId}/rotate-secret                         401   200   200    403    403     403     403 403  403  403   404
GET /webhooks/{webhookId}/deliveries                             401   200   200    200    200     200     200 403  403  403   404
POST /webhooks/{webhookId}/ping                                  401   200   200    403    403     403     403 403  403  403   404
POST /webhooks/{webhookId}/recover                               401   200   200    403    403     403     403 403  403  403   404
GET /webhooks/{webhookId}/deliveries/{deliveryId}                401   200   200    200    200     200     200 403  403  403   404
POST /webhooks/{webhookId}/deliveries/{deliveryId}/redeliver     401   200   200    403    403     403     403 403  403  403   404
"""

OUTSIDE = """
/  /account/unlock  /dashboard/<path:name>  /docs  /docs/<name>  /docs/confine.js  /docs/start.js  /openapi.json  /asyncapi.json
/healthz  /readyz  /readyz/devices  /metrics
/dashboard/session/first-run  /dashboard/session/first-run/state
/dashboard/session/login  /dashboard/session/login/second-factor  /dashboard/session/login/passkey
/dashboard/session/refresh  /dashboard/session/logout  /dashboard/session/methods
"""
"""Routes that are not operations of the document and need no authentication. The live feed authenticates separately."""


def rows() -> dict[str, dict[str, int]]:
    """Row → column → status."""
    header, *lines = TABLE.strip("\n").splitlines()
    columns = header.split()
    found: dict[str, dict[str, int]] = {}
    for line in lines:
        name, cells = line[:62].strip(), line[62:].split()
        found[name] = dict(zip(columns, map(int, cells), strict=True))
    return found


def operation_of(row: str) -> tuple[str, str]:
    """Method and path below `/api/v1`, without the query."""
    method, target = target_of(row)
    return method, target.partition("?")[0]


def target_of(row: str) -> tuple[str, str]:
    """Method and path below `/api/v1`, with the query that the row needs."""
    method, _, target = row.partition(" #")[0].partition(" ")
    return method, target
