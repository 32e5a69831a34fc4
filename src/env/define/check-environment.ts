import { z } from 'zod'
import { MillraceError } from '../../errors/index.ts'
import { nearestName, pathText, unknownField } from '../../kit/index.ts'
import { describeIssues, limitsSchema, safeParse, samplingSchema } from '../../schema/index.ts'
import { repairRulesSchema, ToolBox, type Tool } from '../../tools/index.ts'
import { shortValue, isFunction, mustBe, timeoutSchema } from './check-options.ts'
import type { Environment } from './define-environment.ts'
import { toolFormatNames } from '../../tool-formats/index.ts'

type Fields = Readonly<Record<string, unknown>>

/** The least `maxChars`: a shortened output needs room for the note that says so. */
const minOutputChars = 1_000

const text = z.string(mustBe('a text')).min(1, mustBe('a text'))
const optionalFunction = functionSchema('a function').optional()
const schemaSchema = z.custom(isSchema, mustBe('a schema, such as z.object({ … })'))

const toolOutputSchema = z.strictObject({ maxChars: z.int().min(minOutputChars), spill: z.boolean().optional() })
const toolOutputProblem = `must have \`maxChars\`, a whole number of at least ${minOutputChars}, and may have \`spill\``

const environmentShape = {
  name: text,
  description: z.unknown().optional(),
  task: schemaSchema,
  tasks: functionSchema('a function that returns the tasks'),
  prompt: functionSchema('a function that returns the first messages'),
  reward: z.unknown().superRefine(checkReward),
  taskId: optionalFunction,
  forTask: optionalFunction,
  setup: optionalFunction,
  teardown: optionalFunction,
  agent: optionalFunction,
  update: optionalFunction,
  contextPolicy: optionalFunction,
  feedback: optionalFunction,
  options: schemaSchema.optional(),
  addresses: z.array(z.string(), mustBe('a list of names of options')).optional(),
  groupPolicy: z.enum(['keep', 'replace', 'void'], mustBe('"keep", "replace" or "void"')).optional(),
  isolation: z.enum(['thread', 'process'], mustBe('"thread" or "process"')).optional(),
  mcpServers: z
    .custom(
      (value) => isFields(value) || isFunction(value),
      mustBe('an object of named servers, or a function that returns one'),
    )
    .optional(),
  toolFormat: z.enum(toolFormatNames, mustBe(`one of ${toolFormatNames.join(', ')}`)).optional(),
  tools: z.custom<Fields>(isFields, mustBe('an object of named tools')).optional(),
  toolOutput: z.custom((value) => toolOutputSchema.safeParse(value).success, toolOutputProblem).optional(),
  limits: z.unknown().optional(),
  sampling: z.unknown().optional(),
  repair: z.unknown().optional(),
} satisfies Readonly<Record<keyof Environment, z.ZodType>>

/** The fields that are plain data: their problems are told together. */
const plainFields = { limits: limitsSchema.partial(), sampling: samplingSchema, repair: repairRulesSchema }

/** Without these, some wrong values would pass: an unknown rule would act as `reuse`, an invalid time as no time limit at all. */
const toolShape = {
  parameters: schemaSchema,
  run: functionSchema('a function'),
  runWritten: optionalFunction,
  description: z.string(mustBe('a text')).optional(),
  exclusive: z.boolean(mustBe('true or false')).optional(),
  resume: z.enum(['rerun', 'reuse', 'restart'], mustBe('"rerun", "reuse" or "restart"')).optional(),
  timeoutMs: timeoutSchema.optional(),
  origin: z.unknown().optional(),
} satisfies Readonly<Record<keyof Tool, z.ZodType>>

/** Throws `env_invalid` with everything that is wrong: modules are loaded at run time, so types alone do not tell. */
export function checkEnvironment(value: unknown, where: string): asserts value is Environment {
  const problems = isFields(value)
    ? problemsOf(value)
    : [`expected the result of defineEnvironment(), not ${shortValue(value)}`]
  if (problems.length === 0) return
  throw new MillraceError('env_invalid', `${where} is not an environment: ${problems.join('; ')}`)
}

function problemsOf(fields: Fields): string[] {
  const problems = shapeProblems(fields, environmentShape)
  problems.push(...toolProblems(fields['tools']))
  for (const [field, schema] of Object.entries(plainFields)) {
    const checked = safeParse(schema.optional(), fields[field])
    if (!checked.success)
      problems.push(`\`${field}\` does not fit: ${describeIssues(checked.error.issues, fields[field])}`)
  }
  return [...problems, ...misspelt(fields, Object.keys(environmentShape))]
}

function toolProblems(tools: unknown): string[] {
  if (!isFields(tools)) return []
  const broken = Object.entries(tools).flatMap(([name, tool]) => {
    const fields = isFields(tool) ? tool : {}
    const path = `tools.${name}.`
    return shapeProblems(fields, toolShape, path).concat(misspelt(fields, Object.keys(toolShape), path))
  })
  if (broken.length > 0) return broken
  try {
    // Prepares every tool as a run would, so that a schema without a JSON Schema is found now.
    void new ToolBox(tools as Readonly<Record<string, Tool<object>>>)
    return []
  } catch (error) {
    return [MillraceError.from(error, 'env_invalid').rawMessage]
  }
}

function shapeProblems(fields: Fields, shape: Readonly<Record<string, z.ZodType>>, path = ''): string[] {
  const issues = safeParse(z.looseObject(shape), fields).error?.issues ?? []
  return issues.map((issue) => `\`${path}${pathText(issue.path)}\` ${issue.message}`)
}

/** Finds fields that look like misspelt ones of ours. Other unknown fields are the author's own and are allowed. */
function misspelt(fields: Fields, known: readonly string[], path = ''): string[] {
  return Object.keys(fields).flatMap((field) => {
    const near = known.includes(field) ? undefined : nearestName(field, known)
    return near === undefined ? [] : [`\`${path}${field}\` is not known; did you mean \`${near}\`?`]
  })
}

function checkReward(reward: unknown, context: z.RefinementCtx): void {
  if (isFunction(reward)) return
  if (!isFields(reward) || Object.keys(reward).length === 0) {
    const message = `must be a function, or an object of named functions, not ${shortValue(reward)}`
    context.addIssue({ code: 'custom', message })
    return
  }
  for (const [name, component] of Object.entries(reward)) {
    if (isFunction(component)) continue
    const parts: Fields = isFields(component) ? component : {}
    const problem = (message: string, ...path: string[]): void =>
      context.addIssue({ code: 'custom', path: [name, ...path], message })
    if (isFunction(parts['score']) === isFunction(parts['group'])) {
      problem('must be a function, or an object with either `score` or `group`')
    }
    const { weight } = parts
    if (weight !== undefined && !Number.isFinite(weight)) problem('must be a number', 'weight')
    const unknown = unknownField(parts, ['weight', 'score', 'group'], `reward.${name}.`)
    if (unknown !== undefined) problem(`has an unknown field: ${unknown}`)
  }
}

function functionSchema(expected: string): z.ZodType {
  return z.custom(isFunction, mustBe(expected))
}

function isFields(value: unknown): value is Fields {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

function isSchema(value: unknown): boolean {
  if ((typeof value !== 'object' && typeof value !== 'function') || value === null || !('~standard' in value))
    return false
  const standard = value['~standard']
  return isFields(standard) && isFunction(standard['validate'])
}
