import { describe, expect, test } from 'vitest'
import { seededRandom } from '../../kit/index.ts'
import type { AssistantMessage, CallRecord, ContentPart, Message, MessageNode } from '../../schema/index.ts'
import { canonicalForm, looseCanonicalForm } from '../../endpoint/message-key.ts'
import { SessionTree, type TreeNode } from './session-tree.ts'

const call: CallRecord = {
  model: 'm',
  backend: 'b',
  finishReason: 'stop',
  usage: { calls: 1, input: 1, cachedInput: 0, output: 1, reasoning: 0 },
  cost: null,
  tries: 1,
  ms: 1,
  waitMs: 0,
}

/** A tree whose records stay in memory. */
class Recorded {
  readonly nodes: MessageNode[] = []
  tree: SessionTree

  constructor() {
    this.tree = this.#newTree()
  }

  say(...messages: Message[]): TreeNode | undefined {
    return this.tree.append(messages, this.tree.match(messages))
  }

  reply(parent: TreeNode | undefined, message: AssistantMessage, replyId?: string): TreeNode {
    return this.tree.addSample(parent, message, { call: { ...call, ...(replyId !== undefined && { replyId }) } })
  }

  lose(parent: TreeNode | undefined, message: AssistantMessage): TreeNode {
    const { finishReason: _none, ...facts } = call
    return this.tree.addSample(parent, message, { discarded: { ...facts, why: 'client_gone' } })
  }

  /** As a process that comes later finds it. */
  restore(): void {
    this.tree = this.#newTree()
    for (const node of this.nodes) this.tree.restore(node)
  }

  #newTree(): SessionTree {
    const recorder = {
      node: (node: MessageNode): unknown => this.nodes.push(node),
      synced: () => undefined,
      version: () => undefined,
    }
    return new SessionTree(recorder)
  }
}

const system: Message = { role: 'system', content: 'be brief' }
const user = (content: string): Message => ({ role: 'user', content })
const assistant = (content: string): AssistantMessage => ({ role: 'assistant', content })
const calling = (args: string, id = 'c1'): AssistantMessage => ({
  role: 'assistant',
  content: null,
  tool_calls: [{ id, type: 'function', function: { name: 'f', arguments: args } }],
})

function bash(command: string, edit: string): AssistantMessage {
  const written = { Bash: JSON.stringify({ command }), Edit: edit }
  const calls = Object.entries(written).map(([name, args]) => ({
    id: name,
    type: 'function' as const,
    function: { name, arguments: args },
  }))
  return { role: 'assistant', content: null, tool_calls: calls }
}

function editOf(replacement: string): string {
  return JSON.stringify({ replace_all: false, file_path: 'a', old_string: 'b', new_string: replacement })
}

describe('the canonical form of a message', () => {
  const same: [string, Message, Message][] = [
    [
      'text in parts',
      user('ab'),
      {
        role: 'user',
        content: [
          { type: 'text', text: 'a' },
          { type: 'text', text: 'b' },
        ],
      },
    ],
    ['no content', { role: 'assistant', content: null }, assistant('')],
    ['dropped reasoning', { ...assistant('a'), reasoning_content: 'hm' }, assistant('a')],
    ['a refusal that came back as text', { ...assistant('a'), refusal: 'no' }, assistant('ano')],
    ['an image of usual detail', image('x'), image('x', 'auto')],
    [
      'empty text around an image',
      image('x'),
      { role: 'user', content: [{ type: 'text', text: '' }, ...parts(image('x'))] },
    ],
  ]
  test.each(same)('%s does not change the canonical form', (_, one, other) => {
    expect(canonicalForm(one)).toEqual(canonicalForm(other))
  })

  const written: [string, string, string][] = [
    ['spaces', '{"a":1,"b":[2]}', '{ "a": 1, "b": [ 2 ] }'],
    ['order of keys', '{"a":1,"b":{"c":2,"d":3}}', '{"b":{"d":3,"c":2},"a":1}'],
    ['nothing for an empty object', '', '{}'],
    ['a number', '{"a":1.0}', '{"a":1}'],
  ]
  test.each(written)('%s of arguments does not change the loose form', (_, one, other) => {
    expect(canonicalForm(calling(one))).not.toEqual(canonicalForm(calling(other)))
    expect(looseCanonicalForm(calling(one))).toEqual(looseCanonicalForm(calling(other)))
  })

  const edited: [string, string, string][] = [
    ['a command', '{"command":"cd /prod && rm -rf x"}', '{"command":"cd /staging && rm -rf x"}'],
    ['a folder', '{"command":"cd /prod && rm -rf x"}', '{"command":"rm -rf x"}'],
    ['a field that is false', '{"dry_run":false,"path":"a"}', '{"path":"a"}'],
    ['a field that is null', '{"limit":null,"path":"a"}', '{"path":"a"}'],
    ['spaces at the ends of lines', '{"text":"a  \\nb"}', '{"text":"a\\nb"}'],
  ]
  test.each(edited)('%s of arguments changes the loose form', (_, one, other) => {
    expect(looseCanonicalForm(calling(one))).not.toEqual(looseCanonicalForm(calling(other)))
  })

  test('the order of calls does not change the loose form', () => {
    const calls = [...(calling('{}', 'c1').tool_calls ?? []), ...(calling('{}', 'c2').tool_calls ?? [])]
    const one: Message = { role: 'assistant', content: null, tool_calls: calls }
    const other: Message = { ...one, tool_calls: calls.toReversed() }
    expect(canonicalForm(one)).not.toEqual(canonicalForm(other))
    expect(looseCanonicalForm(one)).toEqual(looseCanonicalForm(other))
  })

  const different: [string, Message, Message][] = [
    ['roles', system, { role: 'developer', content: 'be brief' }],
    ['text', user('a'), user('a ')],
    ['names', { role: 'user', content: 'a', name: 'x' }, user('a')],
    ['calls', calling('{"a":1}'), calling('{"a":2}')],
    ['ids of calls', calling('{}', 'c1'), calling('{}', 'c2')],
    ['broken arguments', calling('{"a":'), calling('{"a"')],
    ['tool calls and text', calling('{}'), assistant(canonicalForm(calling('{}')))],
    ['tools', { role: 'tool', tool_call_id: 'a', content: 'b' }, { role: 'tool', tool_call_id: 'b', content: 'b' }],
    ['failed tools', toolResult(true), toolResult(false)],
    ['images', image('x'), image('y')],
    ['detail', image('x', 'high'), image('x')],
    ['images and text', image('x'), user(canonicalForm(image('x')))],
    ['refusals', { ...assistant('a'), refusal: 'no' }, assistant('a')],
  ]
  test.each(different)('%s have different forms', (_, one, other) => {
    expect(canonicalForm(one)).not.toBe(canonicalForm(other))
    expect(looseCanonicalForm(one) ?? canonicalForm(one)).not.toBe(looseCanonicalForm(other) ?? canonicalForm(other))
  })
})

describe('a session', () => {
  test('grows at its end while its client continues', () => {
    const recorded = new Recorded()
    const said: Message[] = [system, user('0')]
    for (let turn = 1; turn <= 20; turn += 1) {
      const leaf = recorded.say(...said)
      const reply = assistant(`answer ${turn}`)
      recorded.reply(leaf, reply)
      said.push(reply, user(String(turn)))
    }
    expect(recorded.nodes.map(({ parent }) => parent)).toEqual([null, ...Array.from({ length: 40 }, (_, seq) => seq)])
    expect(recorded.nodes.filter(({ sampled }) => sampled)).toHaveLength(20)
  })

  test('forks if the client changed its history', () => {
    const recorded = new Recorded()
    recorded.reply(recorded.say(system, user('a')), assistant('A'))
    const leaf = recorded.say(system, user('a'), assistant('something else'), user('b'))
    expect(leaf?.seq).toBe(4)
    expect(recorded.nodes.slice(3).map(({ parent, sampled }) => [parent, sampled])).toEqual([
      [1, false],
      [3, false],
    ])
  })

  const worked = bash('cd /work && make', '{"file_path":"a","old_string":"b","new_string":"c "}')
  const changes: [string, AssistantMessage, boolean][] = [
    ['as Claude Code changes it', bash('make', editOf('c')), true],
    ['in the folder it named', bash('cd /work && make', editOf('c')), true],
    ['with the spaces of a file that is not there', bash('make', editOf('c ')), true],
    ['in another folder', bash('cd /staging && make', editOf('c')), false],
    ['in a folder that was not said', bash('cd /work && cd /a && make', editOf('c')), false],
    ['with more spaces', bash('make', editOf('c  ')), false],
    ['with another field', bash('make', '{"file_path":"a","old_string":"b","new_string":"c","keep":false}'), false],
  ]
  test.each(changes)('whose client sends calls back %s', (_, sent, isKnown) => {
    for (const api of ['messages', 'chat', 'responses'] as const) {
      const recorded = new Recorded()
      const before: Message[] = [system, user('a')]
      recorded.tree.addSample(recorded.say(...before), worked, { call: { ...call, api } })
      const conversation = [...before, sent, user('b')]
      for (const time of ['at once', 'restored']) {
        const found = recorded.tree.match(conversation)
        const known = isKnown && api === 'messages' ? 3 : 2
        expect({ api, time, known: found.known }).toEqual({ api, time, known })
        if (known === 2) continue
        const read = new Map([[2, worked.tool_calls ?? []]])
        expect(recorded.tree.inRecordedSpelling(conversation, found, read)[2]).toEqual(worked)
        recorded.restore()
      }
    }
  })

  test('forks at texts cut within different characters', () => {
    const recorded = new Recorded()
    const cut = ['😀', '🤖'].map((character) => user(`so far ${character.slice(0, 1)}`))
    expect(cut.map((message) => recorded.say(system, message)?.seq)).toEqual([1, 2])
    recorded.restore()
    expect(cut.map((message) => recorded.say(system, message)?.seq)).toEqual([1, 2])
  })

  test('starts a new tree for another system prompt', () => {
    const recorded = new Recorded()
    recorded.say(system, user('a'))
    recorded.say({ role: 'system', content: 'you are a sub-agent' }, user('a'))
    expect(recorded.nodes.map(({ parent }) => parent)).toEqual([null, 0, null, 2])
  })

  test('keeps samples of one prompt as siblings, and continues from the latest', () => {
    const recorded = new Recorded()
    const leaf = recorded.say(user('a'))
    recorded.reply(leaf, assistant('A'))
    recorded.reply(recorded.say(user('a')), assistant('A'))
    recorded.say(user('a'), assistant('A'), user('b'))
    expect(recorded.nodes.map(({ parent }) => parent)).toEqual([null, 0, 0, 2])
  })

  test('continues from the reply that it continued from before, among equal replies', () => {
    const recorded = new Recorded()
    const leaf = recorded.say(user('a'))
    recorded.reply(leaf, assistant('A'))
    const first = recorded.say(user('a'), assistant('A'), user('b'))
    recorded.reply(leaf, assistant('A'))
    expect(recorded.say(user('a'), assistant('A'), user('b'))).toEqual(first)
    expect(recorded.nodes).toHaveLength(4)
  })

  const thinking = (thought: string): AssistantMessage => ({ ...assistant('A'), reasoning_content: thought })
  test.each([
    ['with other reasoning', ['one', 'two'].map(thinking)],
    ['in another spelling', [calling('{"a":1,"b":2}'), calling('{ "b": 2, "a": 1 }')]],
  ])('continues from the latest of equal replies (%s)', (_, replies) => {
    for (const isRestored of [false, true]) {
      const recorded = new Recorded()
      const leaf = recorded.say(user('a'))
      const [, latest] = replies.map((message) => recorded.reply(leaf, message))
      if (isRestored) recorded.restore()
      for (const message of replies) {
        const next = recorded.say(user('a'), message, user('b'))
        expect(recorded.nodes[next?.seq ?? -1]?.parent).toBe(latest?.seq)
      }
    }
  })

  test('continues from the latest reply that reached the client', () => {
    const recorded = new Recorded()
    const leaf = recorded.say(user('a'))
    const delivered = recorded.reply(leaf, assistant('A'))
    recorded.reply(leaf, assistant('A')).undelivered = { call, lacksTokens: false }
    const next = recorded.say(user('a'), assistant('A'), user('b'))
    expect(recorded.nodes[next?.seq ?? -1]?.parent).toBe(delivered.seq)
  })

  test('keeps a reply that was continued before those that were not', () => {
    const recorded = new Recorded()
    const leaf = recorded.say(user('a'))
    const first = recorded.reply(leaf, assistant('A'))
    const second = recorded.reply(recorded.say(user('a'), assistant('A'), user('b')), assistant('B'))
    for (let others = 0; others < 12; others += 1) recorded.reply(leaf, assistant('A'))
    for (const comes of ['now', 'later']) {
      if (comes === 'later') recorded.restore()
      const next = recorded.say(user('a'), assistant('A'), user('b'), assistant('B'), user(comes))
      expect(recorded.nodes[next?.seq ?? -1]?.parent).toBe(second.seq)
    }
    expect(recorded.nodes.filter(({ parent }) => parent === first.seq)).toHaveLength(1)
  })

  test('continues from a reply named by its id, even if it is not the latest', () => {
    const recorded = new Recorded()
    const leaf = recorded.say(user('a'))
    const named = recorded.reply(leaf, assistant('A'))
    recorded.reply(leaf, assistant('A'))
    const messages = [user('a'), assistant('A'), user('b'), user('c')]
    for (const isKnown of [false, true]) {
      const match = recorded.tree.match(messages, { count: 2, node: named })
      expect(match.known).toBe(isKnown ? 4 : 2)
      const end = recorded.tree.append(messages, match)
      const before = recorded.nodes[end?.seq ?? -1]?.parent ?? -1
      expect(recorded.nodes[before]).toMatchObject({ parent: named.seq, message: user('b') })
    }
  })

  test('places a late reply where it belongs, after the session continued elsewhere', () => {
    const recorded = new Recorded()
    const first = recorded.say(user('a'))
    recorded.say(user('b'))
    const reply = recorded.reply(first, assistant('A'))
    const elsewhere = recorded.say(user('b'), assistant('A'), user('c'))
    expect(recorded.nodes[elsewhere?.seq ?? -1]?.parent).not.toBe(reply.seq)
    const next = recorded.say(user('a'), assistant('A'), user('c'))
    expect(recorded.nodes[next?.seq ?? -1]?.parent).toBe(reply.seq)
  })

  test('records lost replies outside of any conversation', () => {
    const recorded = new Recorded()
    recorded.lose(recorded.say(user('a')), assistant('A'))
    recorded.say(user('a'), assistant('A'), user('b'))
    expect(recorded.nodes.map(({ parent, sampled }) => [parent, sampled])).toEqual([
      [null, false],
      [0, true],
      [0, false],
      [2, false],
    ])
  })

  test('finds a reply by its id, the latest if several share it', () => {
    const recorded = new Recorded()
    const leaf = recorded.say(user('a'))
    recorded.reply(leaf, assistant('A'), 'chatcmpl-1')
    recorded.reply(leaf, assistant('B'), 'chatcmpl-1')
    expect(recorded.tree.replyNamed('chatcmpl-1')?.seq).toBe(2)
    recorded.restore()
    expect(recorded.tree.replyNamed('chatcmpl-1')?.seq).toBe(2)
    expect(recorded.tree.replyNamed('chatcmpl-2')).toBeUndefined()
  })

  test('recognises sampled arguments that a client respelled', () => {
    const recorded = new Recorded()
    recorded.reply(recorded.say(user('a')), calling('{ "x": 1, "y": 2 }'))
    for (let turn = 0; turn < 3; turn += 1) recorded.say(user('a'), calling('{"y":2,"x":1}'), toolResult(false))
    expect(recorded.nodes).toHaveLength(3)
  })
})

test.each(Array.from({ length: 40 }, (_, seed) => seed))('random conversations are matched, seed %i', (seed) => {
  const random = seededRandom(seed)
  const pick = <Item>(items: readonly Item[]): Item => items[Math.floor(random() * items.length)] as Item
  const recorded = new Recorded()
  const conversations: Message[][] = [[system]]
  /** Prompts whose reply is still to come. */
  const asked: { leaf: TreeNode | undefined; said: Message[] }[] = []
  for (let step = 0; step < 120; step += 1) {
    if (random() < 0.05) {
      recorded.restore()
      // Nothing is read anew while a request is under way: nodes are of the tree that they came from.
      asked.length = 0
    }
    if (asked.length > 0 && random() < 0.5) {
      const { leaf, said } = pick(asked)
      const reply = pick([
        assistant(pick(words)),
        calling(pick(spellings)),
        { ...assistant(pick(words)), reasoning_content: 'hm' },
      ])
      if (random() < 0.2) recorded.lose(leaf, reply)
      else {
        recorded.reply(leaf, reply)
        conversations.push([...said, reply])
      }
      continue
    }
    const said = changed([...pick(conversations), user(pick(words))], random)
    const before = recorded.nodes.length
    const known = longestKnown(recorded.nodes, said)
    const leaf = recorded.say(...said)
    // Nothing is appended that was known, and what the path says is what the client said.
    expect(recorded.nodes.length - before).toBe(said.length - known)
    expect(pathTo(recorded.nodes, leaf?.seq ?? null).map(canonical)).toEqual(said.map(canonical))
    asked.push({ leaf, said })
    if (asked.length > 4) asked.shift()
    conversations.push(said)
    if (conversations.length > 12) conversations.shift()
  }
  expect(recorded.nodes.map(({ seq }) => seq)).toEqual(recorded.nodes.map((_, index) => index))
})

const words = ['a', 'b', 'c']
const spellings = ['{"x":1,"y":2}', '{"y":2,"x":1}', '{ "x": 1, "y": 2 }', '{"x":2}', 'broken {']

/** As clients change what they send back: nothing, the way it is written, or what it says. */
function changed(said: readonly Message[], random: () => number): Message[] {
  const rewritten = said.map((message): Message => {
    if (message.role === 'assistant' && random() < 0.5) {
      const { reasoning_content: _dropped, ...kept } = message
      return { ...kept, content: kept.content === null && random() < 0.5 ? '' : kept.content }
    }
    if (message.role === 'user' && typeof message.content === 'string' && random() < 0.3) {
      return { role: 'user', content: [{ type: 'text', text: message.content }] }
    }
    return message
  })
  if (random() < 0.1) rewritten[Math.floor(random() * rewritten.length)] = user('rewritten')
  if (random() < 0.05) rewritten[0] = { role: 'system', content: 'another agent' }
  return random() < 0.1 ? rewritten.slice(0, 1 + Math.floor(random() * rewritten.length)) : rewritten
}

/** The naive way: looks at every node for every message. */
function longestKnown(nodes: readonly MessageNode[], said: readonly Message[]): number {
  let ends: (number | null)[] = [null]
  let known = 0
  for (const message of said) {
    const wanted = canonical(message)
    const next = nodes.filter(
      (node) => !node.discarded && ends.includes(node.parent) && canonical(node.message) === wanted,
    )
    if (next.length === 0) break
    ends = next.map(({ seq }) => seq)
    known += 1
  }
  return known
}

function pathTo(nodes: readonly MessageNode[], leaf: number | null): Message[] {
  const path: Message[] = []
  for (let seq = leaf; seq !== null; seq = nodes[seq]?.parent ?? null) path.push((nodes[seq] as MessageNode).message)
  return path.toReversed()
}

/** What a message says, found out in another way than the tree does. */
function canonical(message: Message): string {
  const { content } = message
  const text =
    typeof content === 'string' || content === null
      ? (content ?? '')
      : content.map((part) => 'text' in part && part.text)
  const calls = message.role === 'assistant' ? (message.tool_calls ?? []) : []
  const args = calls.map(({ function: { arguments: written } }) => {
    try {
      const entries = Object.entries(JSON.parse(written) as object)
      return entries.toSorted(([one], [other]) => one.localeCompare(other))
    } catch {
      return written
    }
  })
  return JSON.stringify([message.role, [text].flat().join(''), args])
}

function image(url: string, detail?: 'auto' | 'high'): Message {
  return { role: 'user', content: [{ type: 'image_url', image_url: { url, ...(detail && { detail }) } }] }
}

function parts(message: Message): readonly ContentPart[] {
  return Array.isArray(message.content) ? message.content : []
}

function toolResult(failed: boolean): Message {
  return { role: 'tool', tool_call_id: 'c1', content: 'r', ...(failed && { is_error: true }) }
}

test('reply and item ids count in the size of a tree', () => {
  const holding = (names: Pick<CallRecord, 'replyId' | 'itemIds'>): number => {
    const recorded = new Recorded()
    recorded.tree.addSample(undefined, assistant('a'), { call: { ...call, ...names } })
    const { bytes } = recorded.tree
    recorded.restore()
    expect(recorded.tree.bytes).toBe(bytes)
    return bytes
  }
  const unnamed = holding({})
  const perName = holding({ replyId: 'resp_1' }) - unnamed
  expect(perName).toBeGreaterThan(0)
  expect(holding({ replyId: 'resp_1', itemIds: { rs: ['rs_1', 'rs_2'], fc: ['fc_1'] } })).toBe(unnamed + 4 * perName)
})

describe('a conversation with a known beginning', () => {
  const one = [system, user('a'), assistant('b')]
  const other = [{ ...system, content: 'be long' }, user('c'), assistant('d')]

  const situations: [string, (recorded: Recorded) => unknown][] = [
    ['at once', () => {}],
    ['when another one was last', (recorded) => recorded.say(...other)],
    ['when it was cut', (recorded) => recorded.say(system, user('z'))],
    [
      'when something has a duplicate',
      (recorded) => {
        const parent = recorded.say(...other)
        recorded.reply(parent, assistant('t'))
        recorded.reply(parent, assistant('t'))
      },
    ],
  ]
  test.each(situations)('continues from it %s', (_, happen) => {
    const recorded = new Recorded()
    const node = recorded.say(...one) as TreeNode
    happen(recorded)
    const messages = [...one, user('next')]
    const match = recorded.tree.match(messages, { count: one.length, node })
    expect(match.known).toBe(one.length)
    expect(match.end).toEqual(node)
    const leaf = recorded.tree.append(messages, match)
    expect(recorded.nodes.at(-1)).toMatchObject({ seq: leaf?.seq, parent: node.seq, message: user('next') })
    expect(recorded.tree.match(messages)).toMatchObject({ known: messages.length, end: leaf })
  })
})
