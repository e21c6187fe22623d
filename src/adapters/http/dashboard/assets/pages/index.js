/* The pages by their names in the address. */

import { Account } from "./account.js";
import { Approvals } from "./approvals.js";
import { Calendar } from "./calendar.js";
import { DevicePage } from "./device.js";
import { Devices } from "./devices.js";
import { Keys } from "./keys.js";
import { Log } from "./log.js";
import { More } from "./more.js";
import { Team } from "./team.js";
import { Webhooks } from "./webhooks.js";

export const pages = { devices: Devices, device: DevicePage, approvals: Approvals, calendar: Calendar, log: Log, keys: Keys, webhooks: Webhooks, team: Team, account: Account, more: More };
