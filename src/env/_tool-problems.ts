import { MillraceError } from '../errors/index.ts'
import { ToolBox, type ResumeRule, type Tool } from '../tools/index.ts'
import { briefly, functionRule, isFields, misspelt, schemaRule, type FieldRule, type Fields } from './_field-rules.ts'

const toolFieldNames: Readonly<Record<keyof Tool, true>> = {
  description: true,
  parameters: true,
  exclusive: true,
  resume: true,
  timeoutMs: true,
  origin: true,
  run: true,
}
const knownToolFields = Object.keys(toolFieldNames)

const resumeRules: Readonly<Record<ResumeRule, true>> = { rerun: true, reuse: true, restart: true }

/** Without these, some wrong values would pass: an unknown rule would act as `reuse`, an invalid time as no time limit at all. */
const toolRules = {
  parameters: schemaRule,
  run: functionRule,
  description: { isRight: (value) => typeof value === 'string', expected: 'a text' },
  exclusive: { isRight: (value) => typeof value === 'boolean', expected: 'true or false' },
  resume: {
    isRight: (value) => typeof value === 'string' && Object.hasOwn(resumeRules, value),
    expected: '"rerun", "reuse" or "restart"',
  },
  timeoutMs: { isRight: (value) => typeof value === 'number' && value > 0, expected: 'a number of more than 0' },
} satisfies Readonly<Partial<Record<keyof Tool, FieldRule>>>

/** The fields that cannot be left out. */
const requiredFields: ReadonlySet<string> = new Set<keyof typeof toolRules>(['parameters', 'run'])

/** What is wrong with an environment's `tools`. */
export function toolProblems(tools: unknown): string[] {
  if (tools === undefined) return []
  if (!isFields(tools)) return [`\`tools\` must be an object of named tools, not ${briefly(tools)}`]
  const broken: string[] = []
  for (const [name, tool] of Object.entries(tools)) {
    const parts: Fields = isFields(tool) ? tool : {}
    for (const [field, { isRight, expected }] of Object.entries(toolRules)) {
      const value = parts[field]
      const isLeftOut = value === undefined && !requiredFields.has(field)
      if (!isLeftOut && !isRight(value)) broken.push(`\`tools.${name}.${field}\` must be ${expected}`)
    }
    broken.push(...misspelt(parts, knownToolFields, `tools.${name}.`))
  }
  if (broken.length > 0) return broken
  try {
    // Prepares every tool as a run would, so that a schema without a JSON Schema is found now.
    void new ToolBox(tools as Readonly<Record<string, Tool<object>>>)
    return []
  } catch (error) {
    return [MillraceError.from(error, 'env_invalid').rawMessage]
  }
}
