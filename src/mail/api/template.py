"""The blueprint of a swarm, and its loader from ``swarms.json``."""

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Any

from mail.api.actions import MAILAction
from mail.api.agents import MAILAgentTemplate, agent_from_entry, as_template
from mail.api.checks import check_limit, check_mapping, text_list
from mail.api.definitions import ActionImporter, load_actions
from mail.api.graph import AgentGraph
from mail.api.references import parse_object
from mail.api.swarm import MAILSwarm, UserRole
from mail.api.validation import Wiring, check_parts, check_wiring
from mail.clock import Clock
from mail.core.runtime.settings import RuntimeSettings
from mail.core.suggest import hinted
from mail.db.base import Store
from mail.errors import ConfigError
from mail.swarms_json.references import TRUSTED, ReferencePolicy
from mail.swarms_json.types import SwarmsJSONSwarm
from mail.swarms_json.utils import build_swarm_from_swarms_json, load_swarms_json_from_file
from mail.version import VERSION

__all__ = ["MAILSwarmTemplate"]


class MAILSwarmTemplate(AgentGraph[MAILAgentTemplate]):
    """A swarm that can be instantiated, once per user.

    Attributes:
        supervisors: The agents that may complete tasks.
        agent_names: The agents' names in order.
        adjacency_matrix: Who may write to whom; see `mail.api.graph`.
        The other attributes are the constructor's arguments.
    """

    def __init__(  # noqa: PLR0913 - the documented signature
        self,
        name: str,
        version: str = VERSION,
        agents: Sequence[MAILAgentTemplate] = (),
        actions: Sequence[MAILAction] = (),
        entrypoint: str = "",
        enable_interswarm: bool = False,
        breakpoint_tools: Sequence[str] = (),
        exclude_tools: Sequence[str] = (),
        task_message_limit: int | None = None,
        description: str = "",
        keywords: Sequence[str] = (),
        public: bool = False,
        enable_db_agent_histories: bool = False,
    ) -> None:
        """Check that the parts fit together.

        Args:
            name: The swarm's name.
            version: The swarm's version; this package's by default.
            agents: The agents.
            actions: Actions beside those that the agents bring along.
            entrypoint: The agent that gets messages without an entrypoint of their own.
            enable_interswarm: Whether mail may go to other swarms.
            breakpoint_tools: Tools whose calls pause a task.
            exclude_tools: Tools that no agent may call.
            task_message_limit: Messages that a run of a task may process; None for no limit.
            description: For listings.
            keywords: For listings.
            public: Whether other swarms may list it.
            enable_db_agent_histories: Without a store, instances use ``DATABASE_URL``'s.

        Raises:
            ConfigError: the parts do not fit together; the text says which.
        """
        check_parts(agents, MAILAgentTemplate, actions)
        self.name, self.version, self.entrypoint = name, version, entrypoint
        self.agents, self.actions = list(agents), list(actions)
        self.enable_interswarm = enable_interswarm
        self.breakpoint_tools = text_list("breakpoint_tools", breakpoint_tools)
        self.exclude_tools = text_list("exclude_tools", exclude_tools)
        check_limit(task_message_limit)
        self.task_message_limit, self.public = task_message_limit, public
        self.description, self.keywords = description, text_list("keywords", keywords)
        self.enable_db_agent_histories = enable_db_agent_histories
        self._validate()

    def _validate(self) -> None:
        check_wiring(
            Wiring(
                name=self.name,
                agents=self.agents,
                actions=self.actions,
                entrypoint=self.entrypoint,
                enable_interswarm=self.enable_interswarm,
                breakpoint_tools=self.breakpoint_tools,
                exclude_tools=self.exclude_tools,
            )
        )

    def _set_targets(self, targets: list[list[str]]) -> None:
        # Copies: the same agent template may be part of other swarms.
        self.agents = [as_template(agent) for agent in self.agents]
        for agent, new in zip(self.agents, targets, strict=True):
            agent.comm_targets = new

    def instantiate(  # noqa: PLR0913 - the documented signature
        self,
        instance_params: Mapping[str, Any],
        user_id: str = "default_user",
        user_role: UserRole = "user",
        base_url: str = "http://localhost:8000",
        registry_file: str | None = None,
        print_llm_streams: bool = True,
        *,
        store: Store | str | None = None,
        settings: RuntimeSettings | None = None,
        clock: Clock | None = None,
    ) -> MAILSwarm:
        """Build the agents and return a swarm at work for one user.

        Args:
            instance_params: Given to every agent's factory, above all ``user_token``.
            user_id: Whose instance this is.
            user_role: admin, agent or user.
            base_url: Where this server is reached; used for mail between swarms.
            registry_file: Where known swarms are kept; used for mail between swarms.
            print_llm_streams: Whether replies of models are printed as they stream in.
            store: A store to share, or the URL of one; memory when None.
            settings: Limits of the runtime.
            clock: Time and ids; the machine's when None.

        Raises:
            ConfigError: an agent cannot be built, or the store's URL is wrong.
        """
        check_mapping("instance_params", instance_params)
        if self.enable_interswarm:
            raise ConfigError(
                f"swarm '{self.name}' sets enable_interswarm, but mail between swarms is not part "
                "of this version; set it to false"
            )
        agents = [agent.instantiate(instance_params, self.exclude_tools) for agent in self.agents]
        return MAILSwarm(
            name=self.name,
            version=self.version,
            agents=agents,
            actions=self.actions,
            entrypoint=self.entrypoint,
            user_id=user_id,
            user_role=user_role,
            breakpoint_tools=self.breakpoint_tools,
            exclude_tools=self.exclude_tools,
            task_message_limit=self.task_message_limit,
            description=self.description,
            keywords=self.keywords,
            enable_db_agent_histories=self.enable_db_agent_histories,
            print_llm_streams=print_llm_streams,
            store=store,
            settings=settings,
            clock=clock,
            public=self.public,
        )

    def start_server(
        self,
        port: int = 8000,
        host: str = "0.0.0.0",  # noqa: S104 - the documented default; tokens guard every route
        launch_ui: bool = True,
        ui_port: int = 3000,
        ui_path: str | PathLike[str] | None = None,
        open_browser: bool = True,
        server_url: str | None = None,
    ) -> None:
        """Serve this swarm over HTTP until the process is told to stop (SIGINT, SIGTERM).

        The server is that of ``mail server``: what the arguments do not say (store, limits) comes
        from ``mail.toml`` and the environment.

        Args:
            port: Where the server listens.
            host: On which address.
            launch_ui: Whether to start the user interface that ``ui_path`` names.
            ui_port: Where the user interface listens.
            ui_path: A folder in which ``pnpm dev`` runs a user interface. It finds the server's URL
                in ``NEXT_PUBLIC_MAIL_SERVER_URL``, and is stopped with the server.
            open_browser: Whether to open the user interface in a browser.
            server_url: The URL that the user interface gets, if ``http://localhost:<port>`` is not
                the right one.

        Raises:
            FileNotFoundError: there is no such folder, no ``node_modules`` in it, or no pnpm.
            OSError: a port is in use.
            RuntimeError: the user interface ended within two seconds.
            MAILError: it is called where an event loop runs, or the swarm cannot be served.
        """
        from mail.api.serving import ServerOptions, serve_template

        options = ServerOptions(
            port=port,
            host=host,
            launch_ui=launch_ui,
            ui_port=ui_port,
            ui_path=ui_path,
            open_browser=open_browser,
            server_url=server_url,
        )
        serve_template(self, options)

    @staticmethod
    def from_swarms_json(
        swarm_data: SwarmsJSONSwarm,
        task_message_limit: int | None = None,
        *,
        references: ReferencePolicy = TRUSTED,
    ) -> "MAILSwarmTemplate":
        """Build a template from a swarm's entry in ``swarms.json``.

        Imported actions come first, then those defined in the entry. Blocks while modules are
        imported and ``url::`` documents fetched.

        Args:
            swarm_data: The entry.
            task_message_limit: Messages that a run of a task may process; None for no limit.
            references: What its references may lead to; anything by default. For an entry that
                came over the network use ``ReferencePolicy(imports=(…))``.

        Raises:
            ConfigError: the entry is wrong, or a reference leads nowhere or may not be used.
            WrongReference: an import is not a `MAILAction`, or an action's function is not
                callable; also a TypeError.
        """
        importer = ActionImporter(references)
        data = build_swarm_from_swarms_json(swarm_data, import_action=importer)
        actions = load_actions(data, importer)
        return MAILSwarmTemplate(
            name=data["name"],
            version=data["version"],
            agents=[
                agent_from_entry(agent, actions, importer.references) for agent in data["agents"]
            ],
            actions=list(actions.values()),
            entrypoint=data["entrypoint"],
            enable_interswarm=data["enable_interswarm"],
            breakpoint_tools=data["breakpoint_tools"],
            exclude_tools=data["exclude_tools"],
            task_message_limit=task_message_limit,
            description=data["description"],
            keywords=data["keywords"],
            public=data["public"],
            enable_db_agent_histories=data["enable_db_agent_histories"],
        )

    @staticmethod
    def from_swarm_json(
        json_str: str,
        task_message_limit: int | None = None,
        *,
        references: ReferencePolicy = TRUSTED,
    ) -> "MAILSwarmTemplate":
        """Build a template from the JSON text of one swarm; see `from_swarms_json`.

        Raises:
            ConfigError, WrongReference: as `from_swarms_json`.
        """
        return MAILSwarmTemplate.from_swarms_json(
            parse_object(json_str, "swarm"), task_message_limit, references=references
        )

    @staticmethod
    def from_swarm_json_file(
        swarm_name: str,
        json_filepath: str | PathLike[str] = "swarms.json",
        task_message_limit: int | None = None,
    ) -> "MAILSwarmTemplate":
        """Build the template of one swarm of a file.

        Args:
            swarm_name: Which swarm.
            json_filepath: The file.
            task_message_limit: Messages that a run of a task may process; None for no limit.

        Raises:
            ConfigError: the file or a swarm in it is wrong, or there is no such swarm.
            WrongReference: as `from_swarms_json`.
        """
        swarms = {swarm["name"]: swarm for swarm in load_swarms_json_from_file(json_filepath)}
        if swarm_name not in swarms:
            names = ", ".join(map(repr, swarms)) or "no swarm"
            text = f"swarm '{swarm_name}' not found in {json_filepath}, which has {names}"
            raise ConfigError(hinted(text, swarm_name, swarms))
        return MAILSwarmTemplate.from_swarms_json(swarms[swarm_name], task_message_limit)
