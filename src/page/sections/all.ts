// Lists the modules of all sections. The key of a module is the name of the section in the page's data.
import type { Section } from "../section.ts";
import * as compare from "./compare.ts";
import * as distributed from "./distributed.ts";
import * as host from "./host.ts";
import * as kernels from "./kernels.ts";
import * as memory from "./memory.ts";
import * as modules from "./modules.ts";
import * as operators from "./operators.ts";
import * as overview from "./overview.ts";
import * as timeline from "./timeline.ts";

export const sections: Record<string, Section> = {
  overview,
  operators,
  modules,
  kernels,
  host,
  timeline,
  memory,
  distributed,
  compare,
};
