import type { RepairRules } from './repair-rules.ts'

/** Repairs that are right for every set of tools: none of these rules knows a particular tool. */
export const standardRepairs: RepairRules = {
  mode: 'apply',
  json: true,
  serverRoute: true,
  dropNulls: true,
  coerce: true,
}

/** Ids that models write for a sandbox that they never made. */
const madeUpSandboxIds = (
  'default sandbox sandbox1 sandbox_1 sandbox-1 sandbox_id my_sandbox python python_sandbox new auto none null undefined ' +
  'temp tmp test dummy example placeholder id some_id string 0 1 123 xxx'
).split(' ')

/**
 * The standard repairs, and those that MiroThinker's models need with its tools. R1 to R9 are numbered in docs/repair.md;
 * R2 and R9 are `serverRoute`.
 */
export const miroThinkerRepairs: RepairRules = {
  ...standardRepairs,
  // R1
  toolAlias: [{ from: ['python', 'python_code'], to: 'run_python_code' }],
  parameters: [
    // R3
    { tool: 'scrape_and_extract_info', rename: [{ from: ['description', 'introduction'], to: 'info_to_extract' }] },
    // R4 and R5
    {
      tool: 'run_python_code',
      rename: [{ from: ['code'], to: 'code_block' }],
      defaults: { sandbox_id: 'default' },
    },
    // For R6, which sends code from the one to the other.
    { tool: 'python', rename: [{ from: ['code_block'], to: 'code' }] },
  ],
  valueFallback: [
    // R6: where a tool without state is at hand it runs the code; else the server makes a sandbox for the call itself.
    {
      tool: 'run_python_code',
      parameter: 'sandbox_id',
      when: { falsy: true, oneOf: madeUpSandboxIds },
      action: { callInstead: 'python' },
    },
  ],
  valueRewrite: [
    // R7
    {
      tool: 'scrape_and_extract_info',
      parameter: 'url',
      stripPrefix: 'https://r.jina.ai/',
      onlyIfRestStartsWith: ['http://', 'https://'],
    },
  ],
  retryAfter: [
    // R8
    { tool: 'google_search', parameter: 'q', removeCharacters: '"', whenResult: { emptyAt: 'organic' } },
  ],
}
