/* The pages by their names in the address. */

import { Account } from "./user_settings.js";
import { Add } from "./add_device.js";
import { Approvals } from "./approvals.js";
import { Calendar } from "./calendar.js";
import { DevicePage } from "./device.js";
import { Devices } from "./devices.js";
import { Fleet } from "./fleet.js";
import { Keys } from "./api_keys.js";
import { Log } from "./event_log.js";
import { More } from "./more_menu.js";
import { Cluster } from "./cluster.js";
import { Network } from "./network_reachability.js";
import { SecondFactor } from "./second_factor.js";
import { Team } from "./team.js";
import { Webhooks } from "./webhooks.js";

export const pages = { devices: Devices, add: Add, device: DevicePage, fleet: Fleet, approvals: Approvals, calendar: Calendar, log: Log, keys: Keys, webhooks: Webhooks, team: Team, network: Network, cluster: Cluster, account: Account, more: More, "second-factor": SecondFactor };
