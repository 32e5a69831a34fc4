import type { ApiName, JsonObject } from '../schema/index.ts'
import { isEmpty } from './_json.ts'
import type { RequestDraft } from './_request-draft.ts'

/** The most names of a list: a few are enough to refuse a request with, and there are few kinds of what is left out. */
const maxNames = 16

/** The length at which a name is cut: part of it may be the client's own text. */
const maxNameChars = 120

const listIndex = /\[\d+\]/g

/**
 * Collects the names of parts and fields that only the client's API knows. If the request is translated (`isTranslated`),
 * fields whose absence does not change what the model is asked are left out of it; otherwise all names are equal.
 */
export class Untranslatable {
  /** Whether the request goes to a backend of another API. */
  readonly isTranslated: boolean
  readonly names: string[] = []
  /** The names among them that stand for a part of the conversation which only the provider has. */
  readonly held: string[] = []
  /** The names that are left out, each kind once: of `tools[0].async` and `tools[1].async` there is `tools[].async`. */
  readonly dropped: string[] = []
  /** The names of tools that only the provider runs, each kind once. */
  readonly hosted: string[] = []

  constructor(api: ApiName, backendApi: ApiName = api) {
    this.isTranslated = backendApi !== api
  }

  add(name: string): void {
    addTo(this.names, name)
  }

  addHeld(name: string): void {
    this.add(name)
    addTo(this.held, name)
  }

  /** Adds a setting of what only the client's provider does, or one that has no effect. */
  addDropped(name: string): void {
    this.#addKind(this.dropped, name)
  }

  /** Adds the fields among `labels` that the body has. Labels are about the request, and never keep it from translation. */
  addLabels(body: JsonObject, labels: readonly string[]): void {
    if (!this.isTranslated) return
    for (const label of labels) if (!isEmpty(body[label])) addTo(this.dropped, label)
  }

  addHosted(name: string): void {
    this.#addKind(this.hosted, name)
  }

  #addKind(kinds: string[], name: string): void {
    if (this.isTranslated) addTo(kinds, name.replaceAll(listIndex, '[]'))
    else this.add(name)
  }

  /**
   * Sets the lists of a request, after it was read. A choice that forces a call is refused if no tool that is left can be
   * called for it: the model would be free to answer, or be forced to call what does not exist.
   */
  listIn(request: RequestDraft): void {
    if (this.isTranslated && isUnmeetable(request)) this.add('tool_choice without a tool that can be called')
    if (this.held.length > 0) request.held = this.held
    if (this.dropped.length > 0) request.dropped = this.dropped
    if (this.hosted.length > 0) request.hosted = this.hosted
  }
}

function isUnmeetable({ tools, toolChoice }: RequestDraft): boolean {
  if (toolChoice === undefined || toolChoice === 'auto' || toolChoice === 'none') return false
  return !tools.some(({ function: { name } }) => toolChoice === 'required' || name === toolChoice.name)
}

function addTo(names: string[], name: string): void {
  const cut = name.slice(0, maxNameChars)
  if (names.length < maxNames && !names.includes(cut)) names.push(cut)
}
