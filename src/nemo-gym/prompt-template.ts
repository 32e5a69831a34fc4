import { z } from 'zod'
import type { TaskRow, TaskSource } from '../env/index.ts'
import { MillraceError } from '../errors/index.ts'
import { exactSource, parseExactly } from '../kit/index.ts'
import { isJsonObject, type Json, type JsonObject, safeParse } from '../schema/index.ts'

/** A `prompt_config` of NeMo Gym: the messages of a row whose dataset has only its fields. */
export const promptTemplateSchema = z.object({ user: z.string(), system: z.string().nullish() })

export type PromptTemplate = z.infer<typeof promptTemplateSchema>

/** A doubled brace, a field, or a brace that stands alone. */
const placeholder = /\{\{|\}\}|\{([^{}]*)\}|[{}]/g
/** Fields that Python's formats take apart, or count. */
const unreadable = /[.[!:]|^\d*$/

/** Reads a template. Throws `config_invalid` for one that cannot be filled. */
export function promptTemplate(content: JsonObject, path: string): PromptTemplate {
  const { success, data } = safeParse(promptTemplateSchema, content)
  if (!success) throw invalid(path, 'has no text `user`')
  for (const [found, name] of `${data.system ?? ''} ${data.user}`.matchAll(placeholder)) {
    if (name === undefined && found.length === 1) throw invalid(path, `has a ${found} alone: double it`)
    if (name !== undefined && unreadable.test(name)) throw invalid(path, `has ${found}: write a field as {name}`)
  }
  return data
}

export interface GivenPrompts {
  /** The template of all rows, none of which may have messages of its own. */
  readonly ofAll: PromptTemplate | undefined
  /** The template for a row without messages, or why there is none. */
  readonly of: (row: JsonObject) => PromptTemplate | string | undefined
}

/** The same rows, each with messages. A row that cannot have them fails by itself. */
export function withPrompts(source: TaskSource, prompts: GivenPrompts): TaskSource {
  async function* rows(): AsyncGenerator<TaskRow, void, void> {
    for await (const row of source.rows()) {
      try {
        yield 'value' in row ? { at: row.at, value: prompted(row.value, prompts) } : row
      } catch (error) {
        yield { at: row.at, problem: MillraceError.from(error, 'task_invalid').rawMessage }
      }
    }
  }
  return { label: source.label, rows, total: () => source.total?.() }
}

function prompted(value: unknown, { ofAll, of }: GivenPrompts): unknown {
  const row: unknown = typeof value === 'string' ? JSON.parse(value) : value
  if (!isJsonObject(row)) return value
  if (hasInput(row)) {
    if (!ofAll) return value
    throw new MillraceError(
      'task_invalid',
      'the row has an `input`, and there is a prompt_config: leave one of them out',
    )
  }
  const template = ofAll ?? of(row)
  if (typeof template === 'string') throw new MillraceError('task_invalid', template)
  return template ? withPrompt(value, template) : value
}

function hasInput({ responses_create_params: params }: JsonObject): boolean {
  const input = isJsonObject(params) ? params['input'] : undefined
  return Array.isArray(input) ? input.length > 0 : Boolean(input)
}

/** The row with the messages of a template, as text if it was text. Throws `task_invalid` if it lacks a field. */
function withPrompt(value: unknown, { system, user }: PromptTemplate): unknown {
  const row = typeof value === 'string' ? parseExactly(value) : value
  if (!isJsonObject(row)) return value
  const messages = [
    ...(typeof system === 'string' ? [{ role: 'system', content: filled(system, row) }] : []),
    { role: 'user', content: filled(user, row) },
  ]
  const { responses_create_params: params } = row
  const whole = { ...row, responses_create_params: { ...(isJsonObject(params) && params), input: messages } }
  return typeof value === 'string' ? JSON.stringify(whole) : whole
}

function filled(template: string, row: JsonObject): string {
  return template.replace(placeholder, (found, name?: string) => {
    if (name === undefined) return found.slice(1)
    if (Object.hasOwn(row, name)) return textOf(name, row[name])
    const names = Object.keys(row).join(', ')
    throw new MillraceError('task_invalid', `the prompt has the field {${name}}, and the row only: ${names}`)
  })
}

/** As Python writes a value into a text. */
function textOf(name: string, value: Json | undefined): string {
  if (typeof value === 'string') return value
  if (typeof value === 'boolean') return value ? 'True' : 'False'
  if (value === null) return 'None'
  if (typeof value === 'number') return String(value)
  const written = exactSource(value)
  if (written !== undefined) return written
  throw new MillraceError('task_invalid', `the prompt has the field {${name}}, which is a list or an object in the row`)
}

function invalid(path: string, problem: string): MillraceError {
  return new MillraceError('config_invalid', `the prompt ${path} ${problem}`)
}
