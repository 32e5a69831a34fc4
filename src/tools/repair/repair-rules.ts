import { z } from 'zod'
import { jsonSchema } from '../../schema/index.ts'

/** No environment needs more rules; a longer list is a mistake. */
const maxRules = 1_000

const nameSchema = z.string().min(1).max(256)
const namesSchema = z.array(nameSchema).min(1).max(maxRules)
const scalarSchema = z.union([z.string(), z.number(), z.boolean(), z.null()])

/** A name that models use for a tool. It stands for the tool unless another tool really has that name. */
const toolAliasSchema = z.strictObject({
  from: namesSchema,
  /** The tool's name, or its name on its server. */
  to: nameSchema,
})

const parameterRulesSchema = z.strictObject({
  tool: nameSchema,
  /** The first of `from` that is present and no parameter of the tool becomes `to`. Never over a `to` that is present. */
  rename: z
    .array(z.strictObject({ from: namesSchema, to: nameSchema }))
    .max(maxRules)
    .exactOptional(),
  /** Values for parameters that the tool requires and the call lacks. */
  defaults: z.record(nameSchema, jsonSchema).exactOptional(),
})

/** Values that fit the schema and mean nothing: a made-up id, an empty string. The first rule that matches counts. */
const valueFallbackSchema = z.strictObject({
  tool: nameSchema,
  parameter: nameSchema,
  when: z
    .strictObject({
      /** `null`, `false`, `0` and the empty string. A missing parameter is not falsy: see `defaults`. */
      falsy: z.literal(true).exactOptional(),
      /** Strings are compared without regard to case and to space around them. */
      oneOf: z.array(scalarSchema).min(1).max(maxRules).exactOptional(),
    })
    .refine(({ falsy, oneOf }) => falsy === true || oneOf !== undefined, 'needs `falsy` or `oneOf`'),
  action: z.union([
    z.strictObject({ replaceBy: jsonSchema }),
    z.strictObject({ drop: z.literal(true) }),
    /** Calls another tool, without the parameter. If there is no such tool, the call stays as it is. */
    z.strictObject({ callInstead: nameSchema }),
  ]),
})

const valueRewriteSchema = z.strictObject({
  tool: nameSchema,
  parameter: nameSchema,
  stripPrefix: z.string().min(1),
  /** Only where one of these follows the prefix; if not given, where anything follows it. */
  onlyIfRestStartsWith: z.array(z.string().min(1)).min(1).max(maxRules).exactOptional(),
})

/** A call that found nothing is made once more, with some characters taken out of one parameter. */
const retryRuleSchema = z.strictObject({
  tool: nameSchema,
  parameter: nameSchema,
  removeCharacters: z.string().min(1).max(100),
  whenResult: z.union([
    /** The result is JSON, and empty at this path: `organic`, `data.items`. */
    z.strictObject({ emptyAt: nameSchema }),
    /** The result contains one of these texts, in any case. */
    z.strictObject({ contains: namesSchema }),
  ]),
})

/**
 * Rules for repairing tool calls before they are made: plain data, the same for every rollout. A rule acts on the parsed call,
 * never on the recorded text, and each repair is recorded. A rule that is not given is not applied. docs/repair.md says in which
 * order rules act, and what they never do.
 */
export const repairRulesSchema = z.strictObject({
  /** `log`: repairs are recorded, but calls are made, or refused, as they were written. `apply` if not given. */
  mode: z.enum(['log', 'apply']).exactOptional(),
  /** Arguments that are not JSON are repaired, or the first object among them is taken. */
  json: z.boolean().exactOptional(),
  toolAlias: z.array(toolAliasSchema).max(maxRules).exactOptional(),
  /** A call that names no server, or one that has no such tool, goes to the only tool of that name. */
  serverRoute: z.boolean().exactOptional(),
  /** A parameter that is `null` where its schema has no place for it counts as not given. */
  dropNulls: z.boolean().exactOptional(),
  parameters: z.array(parameterRulesSchema).max(maxRules).exactOptional(),
  /** Values that do not fit their schema are converted where that can be done in one way only. */
  coerce: z.boolean().exactOptional(),
  valueFallback: z.array(valueFallbackSchema).max(maxRules).exactOptional(),
  valueRewrite: z.array(valueRewriteSchema).max(maxRules).exactOptional(),
  retryAfter: z.array(retryRuleSchema).max(maxRules).exactOptional(),
})

export type RepairRules = z.infer<typeof repairRulesSchema>
export type ValueFallback = z.infer<typeof valueFallbackSchema>
export type ValueRewrite = z.infer<typeof valueRewriteSchema>
export type RetryRule = z.infer<typeof retryRuleSchema>

/** Repairs that are right for every set of tools: none of these rules knows a particular tool. */
export const standardRepairs: RepairRules = {
  mode: 'apply',
  json: true,
  serverRoute: true,
  dropNulls: true,
  coerce: true,
}

/** Ids that models write for a sandbox that they never made. */
const syntheticSandboxIds = (
  'default sandbox sandbox1 sandbox_1 sandbox-1 sandbox_id my_sandbox python python_sandbox new auto none null undefined ' +
  'temp tmp test dummy example placeholder id some_id string 0 1 123 xxx'
).split(' ')

/** The standard repairs, and those that MiroThinker's models need: R1 to R9 of docs/repair.md. R2 and R9 are `serverRoute`. */
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
      when: { falsy: true, oneOf: syntheticSandboxIds },
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
